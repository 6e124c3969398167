// The Python types of tables, and of what depends on them.
#include "arguments.hpp"
#include "records.hpp"
#include "tables.hpp"

namespace pequod {

PyTypeObject* table_type = nullptr;
PyTypeObject* relations_type = nullptr;

namespace {

HotTable* whole_table(PyObject* self) {
    return check_all(is_sound(table_of(self)), "a table has groups, and rows without one") ? table_of(self) : nullptr;
}

// get(key): its value, or None.
PyObject* table_get(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!whole_table(self) || !read_piece(key, &wanted)) return nullptr;
    PyObject* value = get(table_of(self), wanted);
    return Py_NewRef(value ? value : Py_None);
}

// put(key, value): the former value, or None.
PyObject* table_put(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("put", count, 2) || !whole_table(self)) return nullptr;
    PyObject* key = exact_bytes(arguments[0]);
    PyObject* value = key ? exact_bytes(arguments[1]) : nullptr;
    PyObject* old = nullptr;
    const Put done = value ? put(table_of(self), key, value, &old) : Put::FAILED;
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (done == Put::FAILED) return nullptr;
    return done == Put::NEW ? Py_NewRef(Py_None) : old;
}

// remove(key): its former value, or None.
PyObject* table_remove(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!whole_table(self) || !read_piece(key, &wanted)) return nullptr;
    PyObject* old = remove(table_of(self), wanted);
    if (!old && PyErr_Occurred()) return nullptr;
    return old ? old : Py_NewRef(Py_None);
}

PyMethodDef table_methods[] = {
    {"get", table_get, METH_O, "Return the value of a key, or None if it is absent."},
    {"put", as_function(table_put), METH_FASTCALL, "Set a key and return the value that it had, or None."},
    {"remove", table_remove, METH_O, "Remove a key and return the value that it had, or None."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef table_members[] = {
    PEQUOD_MEMBER(HotTable, entry_count, T_LONGLONG),
    PEQUOD_MEMBER(HotTable, key_bytes, T_LONGLONG),
    PEQUOD_MEMBER(HotTable, value_bytes, T_LONGLONG),
    PEQUOD_MEMBER(HotTable, prefix, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, end, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, groups, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, loose, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, loaded, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, uses, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, cut_width, T_LONGLONG),
    PEQUOD_LAST_MEMBER,
};
PyMemberDef relations_members[] = {
    PEQUOD_MEMBER(HotRelations, table, T_OBJECT_EX),      PEQUOD_MEMBER(HotRelations, readers, T_OBJECT_EX),
    PEQUOD_MEMBER(HotRelations, searched, T_OBJECT_EX),   PEQUOD_MEMBER(HotRelations, contexts, T_OBJECT_EX),
    PEQUOD_MEMBER(HotRelations, slot_start, T_LONGLONG),  PEQUOD_MEMBER(HotRelations, slot_width, T_LONGLONG),
    PEQUOD_MEMBER(HotRelations, slot_follow, T_LONGLONG), PEQUOD_MEMBER(HotRelations, is_owned, T_BOOL),
    PEQUOD_MEMBER(HotRelations, is_watched, T_BOOL),      PEQUOD_LAST_MEMBER,
};

}  // namespace

int add_table_types(PyObject* module) {
    table_type = make_record_type<HotTable>("pequod.native._hot.HotTable", table_members, table_methods);
    relations_type = make_record_type<HotRelations>("pequod.native._hot.HotRelations", relations_members);
    if (!table_type || !relations_type) return -1;
    if (PyModule_AddObjectRef(module, "HotTable", reinterpret_cast<PyObject*>(table_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotRelations", reinterpret_cast<PyObject*>(relations_type));
}

}  // namespace pequod
