#include "groups.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* groups_type = nullptr;

SortedRows* make_group(HotGroups* groups, size_t hash, Piece prefix) {
    PyObject* own_prefix = PyBytes_FromStringAndSize(prefix.start, Py_ssize_t(prefix.size));
    PyObject* rows = own_prefix ? rows_type->tp_alloc(rows_type, 0) : nullptr;
    GroupPlace* place =
        rows && PyList_Append(groups->fresh, own_prefix) == 0 ? groups->table.room_for(hash, prefix) : nullptr;
    if (!place) {
        Py_XDECREF(own_prefix);
        Py_XDECREF(rows);
        return nullptr;
    }
    *place = {hash, own_prefix, reinterpret_cast<SortedRows*>(rows)};
    return place->rows;
}

namespace {

bool is_prefix(PyObject* prefix) {
    if (PyBytes_Check(prefix)) return true;
    PyErr_SetString(PyExc_TypeError, "prefixes are bytes");
    return false;
}

// get(prefix): the rows of a group, or None.
PyObject* groups_get(PyObject* self, PyObject* prefix) {
    if (!is_prefix(prefix)) return nullptr;
    SortedRows* found = find_group(groups_of(self), hash_of(piece_of(prefix)), piece_of(prefix));
    return Py_NewRef(found ? reinterpret_cast<PyObject*>(found) : Py_None);
}

// add(prefix): the rows of a new group, none yet.
PyObject* groups_add(PyObject* self, PyObject* prefix) {
    if (!is_prefix(prefix)) return nullptr;
    const size_t hash = hash_of(piece_of(prefix));
    if (find_group(groups_of(self), hash, piece_of(prefix))) {
        PyErr_SetString(PyExc_ValueError, "there is such a group");
        return nullptr;
    }
    return Py_XNewRef(reinterpret_cast<PyObject*>(make_group(groups_of(self), hash, piece_of(prefix))));
}

// take_out(prefix): forget a group, whose place in the order is the caller's to change.
PyObject* groups_take_out(PyObject* self, PyObject* prefix) {
    if (!is_prefix(prefix)) return nullptr;
    GroupPlace* place = groups_of(self)->table.find(hash_of(piece_of(prefix)), piece_of(prefix));
    if (!place) {
        PyErr_SetObject(PyExc_KeyError, prefix);
        return nullptr;
    }
    const GroupPlace gone = *place;
    groups_of(self)->table.free(place);
    Py_DECREF(gone.prefix);
    Py_DECREF(gone.rows);
    Py_RETURN_NONE;
}

// items(): a list of prefixes and rows, in no order.
PyObject* groups_items(PyObject* self, PyObject*) {
    const Places<GroupPlace>& table = groups_of(self)->table;
    PyObject* found = PyList_New(0);
    for (size_t at = 0; found && at < table.place_count; ++at) {
        if (table.places[at].is_free()) continue;
        PyObject* pair = PyTuple_Pack(2, table.places[at].prefix, table.places[at].rows);
        if (!pair || PyList_Append(found, pair) < 0) Py_CLEAR(found);
        Py_XDECREF(pair);
    }
    return found;
}

Py_ssize_t groups_length(PyObject* self) { return Py_ssize_t(groups_of(self)->table.size); }

PyObject* groups_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    groups_of(self)->fresh = PyList_New(0);
    if (!groups_of(self)->fresh) Py_CLEAR(self);
    return self;
}

void groups_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    groups_of(self)->table.clear([](const GroupPlace& gone) {
        Py_DECREF(gone.prefix);
        Py_DECREF(gone.rows);
    });
    Py_XDECREF(groups_of(self)->fresh);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"get", groups_get, METH_O, "Return the rows of a group, None if there is none."},
    {"add", groups_add, METH_O, "Return the rows of a new group, none yet."},
    {"take_out", groups_take_out, METH_O, "Forget a group."},
    {"items", groups_items, METH_NOARGS, "Return prefixes and rows, in no order."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"fresh", T_OBJECT_EX, offsetof(HotGroups, fresh), READONLY, "The prefixes that have no place in the order yet."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The rows of a table's groups by their prefixes.")},
    {Py_tp_new, reinterpret_cast<void*>(groups_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(groups_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_sq_length, reinterpret_cast<void*>(groups_length)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.HotGroups", sizeof(HotGroups), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                    slots};

}  // namespace

int add_group_type(PyObject* module) {
    groups_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!groups_type || PyModule_AddIntConstant(module, "FRESH_MAX", FRESH_MAX) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotGroups", reinterpret_cast<PyObject*>(groups_type));
}

}  // namespace pequod
