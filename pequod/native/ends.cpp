#include "ends.hpp"

#include "tables.hpp"

namespace pequod {

PyTypeObject* ends_type = nullptr;

namespace {

Ends* ends_of(PyObject* self) { return reinterpret_cast<Ends*>(self); }

void forget(const End& end) {
    Py_DECREF(end.last);
    Py_DECREF(end.context);
    Py_DECREF(end.table);
}

PyObject* ends_get(PyObject* self, PyObject* last) {
    if (!PyBytes_Check(last)) Py_RETURN_NONE;
    const End* found = ends_of(self)->table.find(hash_of(piece_of(last)), piece_of(last));
    return Py_NewRef(found ? found->context : Py_None);
}

PyObject* ends_put(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3 || !PyBytes_CheckExact(arguments[0]) || !is_hot(arguments[1]) || !is_table(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "put takes bytes, a context and a table");
        return nullptr;
    }
    const Piece last = piece_of(arguments[0]);
    const size_t hash = hash_of(last);
    End* end = ends_of(self)->table.find(hash, last);
    const End former = end ? *end : End{};
    if (!end) end = ends_of(self)->table.room_for(hash, last);
    if (!end) return nullptr;
    *end = {hash, Py_NewRef(arguments[0]), Py_NewRef(arguments[1]), Py_NewRef(arguments[2])};
    if (!former.is_free()) forget(former);
    Py_RETURN_NONE;
}

PyObject* ends_remove(PyObject* self, PyObject* last) {
    End* end = PyBytes_Check(last) ? ends_of(self)->table.find(hash_of(piece_of(last)), piece_of(last)) : nullptr;
    if (!end) Py_RETURN_NONE;
    const End gone = *end;
    ends_of(self)->table.free(end);
    forget(gone);
    Py_RETURN_NONE;
}

Py_ssize_t ends_length(PyObject* self) { return Py_ssize_t(ends_of(self)->table.size); }

int ends_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    const Places<End>& table = ends_of(self)->table;
    for (size_t at = 0; at < table.place_count; ++at) {
        Py_VISIT(table.places[at].context);
        Py_VISIT(table.places[at].table);
    }
    return 0;
}

int ends_clear(PyObject* self) {
    ends_of(self)->table.clear(forget);
    return 0;
}

void ends_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    ends_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"get", ends_get, METH_O, "Return the context of an end, None if there is none."},
    {"put", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(ends_put)), METH_FASTCALL,
     "Set the context of an end."},
    {"remove", ends_remove, METH_O, "Take an end out; nothing changes if it is not there."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Contexts by the ends of reads that they answered.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(ends_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(ends_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(ends_clear)},
    {Py_tp_methods, methods},
    {Py_sq_length, reinterpret_cast<void*>(ends_length)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Ends", sizeof(Ends), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

int add_ends_type(PyObject* module) {
    ends_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return ends_type ? PyModule_AddObjectRef(module, "Ends", reinterpret_cast<PyObject*>(ends_type)) : -1;
}

}  // namespace pequod
