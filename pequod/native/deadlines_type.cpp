// The Python type of deadlines.
#include "arguments.hpp"
#include "deadlines.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* deadlines_type = nullptr;

namespace {

bool is_instant(long long at_ms) {
    if (at_ms >= 0 && at_ms <= INSTANT_MAX) return true;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an instant is 0 to 2**47 - 1 milliseconds");
    return false;
}

// set(key, at_ms): whether the key had none.
PyObject* deadlines_set(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("set", count, 2) || !check_all(PyBytes_CheckExact(arguments[0]), "keys are bytes")) return nullptr;
    const long long at_ms = PyLong_AsLongLong(arguments[1]);
    if (!is_instant(at_ms)) return nullptr;
    const int is_new = set(deadlines_of(self), arguments[0], at_ms);
    return is_new < 0 ? nullptr : PyBool_FromLong(is_new);
}

// remove(key): whether it had one.
PyObject* deadlines_remove(PyObject* self, PyObject* key) {
    Piece wanted;
    return read_piece(key, &wanted) ? PyBool_FromLong(clear(deadlines_of(self), wanted)) : nullptr;
}

// get(key): its instant, or None.
PyObject* deadlines_get(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!read_piece(key, &wanted)) return nullptr;
    const long long at_ms = instant_of(deadlines_of(self), wanted);
    return at_ms < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(at_ms);
}

// tell(now_ms): the present instant from now on; whether a key is due.
PyObject* deadlines_tell(PyObject* self, PyObject* argument) {
    Deadlines* deadlines = deadlines_of(self);
    const long long now_ms = PyLong_AsLongLong(argument);
    if (!is_instant(now_ms)) return nullptr;
    deadlines->now_ms = now_ms;
    const long long first = first_instant(deadlines);
    deadlines->is_due = first >= 0 && first <= now_ms;
    return PyBool_FromLong(deadlines->is_due);
}

// take_due(): the key with the earliest instant, if it is due, without its deadline from now on; or None.
PyObject* deadlines_take_due(PyObject* self, PyObject*) {
    PyObject* key = take_due(deadlines_of(self));
    if (!key) deadlines_of(self)->is_due = false;
    return key ? key : Py_NewRef(Py_None);
}

// due(keys): those of a list of keys that are due.
PyObject* deadlines_due(PyObject* self, PyObject* keys) {
    if (!check_all(is_bytes_list(keys), "keys are a list of bytes")) return nullptr;
    const Deadlines* deadlines = deadlines_of(self);
    PyObject* found = PyList_New(0);
    for (Py_ssize_t at = 0; found && at < PyList_GET_SIZE(keys); ++at) {
        PyObject* key = PyList_GET_ITEM(keys, at);
        const long long at_ms = instant_of(deadlines, piece_of(key));
        if (at_ms >= 0 && at_ms <= deadlines->now_ms && PyList_Append(found, key) < 0) Py_CLEAR(found);
    }
    return found;
}

// among(keys): those of a list of keys that have an instant, each with it, as a list of tuples.
PyObject* deadlines_among(PyObject* self, PyObject* keys) {
    if (!check_all(is_bytes_list(keys), "keys are a list of bytes")) return nullptr;
    PyObject* found = PyList_New(0);
    for (Py_ssize_t at = 0; found && at < PyList_GET_SIZE(keys); ++at) {
        PyObject* key = PyList_GET_ITEM(keys, at);
        const long long at_ms = instant_of(deadlines_of(self), piece_of(key));
        if (at_ms >= 0 && !append(found, Py_BuildValue("(OL)", key, at_ms))) Py_CLEAR(found);
    }
    return found;
}

PyObject* deadlines_check(PyObject* self, PyObject*) {
    if (is_sound(deadlines_of(self))) Py_RETURN_NONE;
    PyErr_SetString(PyExc_AssertionError, "the deadlines are not sound");
    return nullptr;
}

Py_ssize_t deadlines_length(PyObject* self) { return Py_ssize_t(deadlines_of(self)->count); }

PyObject* get_first_ms(PyObject* self, void*) {
    const long long first = first_instant(deadlines_of(self));
    return first < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(first);
}

PyObject* get_byte_count(PyObject* self, void*) {
    const Deadlines* deadlines = deadlines_of(self);
    return PyLong_FromSize_t(deadlines->entry_bytes + deadlines->room * (sizeof(Bucket) + 2 * sizeof(uint64_t)));
}

void deadlines_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    clear_all(deadlines_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"set", as_function(deadlines_set), METH_FASTCALL, "Set the instant of a key; return whether it had none."},
    {"remove", deadlines_remove, METH_O, "Take the instant of a key away; return whether it had one."},
    {"get", deadlines_get, METH_O, "Return the instant of a key, or None."},
    {"tell", deadlines_tell, METH_O, "Take the present instant; return whether a key is due."},
    {"take_due", deadlines_take_due, METH_NOARGS, "Take the earliest key out if it is due, and return it."},
    {"due", deadlines_due, METH_O, "Return those of a list of keys that are due."},
    {"among", deadlines_among, METH_O, "Return those of a list of keys that have an instant, each with it."},
    {"_check", deadlines_check, METH_NOARGS, "Check the invariants."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"now_ms", T_LONGLONG, offsetof(Deadlines, now_ms), READONLY, "The present instant, as it was told last."},
    {"is_due", T_BOOL, offsetof(Deadlines, is_due), READONLY, "Whether a key may be due at the present instant."},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef getters[] = {
    {"first_ms", get_first_ms, nullptr, "The earliest instant, or None.", nullptr},
    {"byte_count", get_byte_count, nullptr, "What the deadlines take beside the bytes of their keys.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("The deadlines of keys.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deadlines_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {Py_sq_length, reinterpret_cast<void*>(deadlines_length)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Deadlines", sizeof(Deadlines), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                    slots};

}  // namespace

int add_deadlines_type(PyObject* module) {
    deadlines_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!deadlines_type) return -1;
    return PyModule_AddObjectRef(module, "Deadlines", reinterpret_cast<PyObject*>(deadlines_type));
}

}  // namespace pequod
