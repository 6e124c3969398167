// The Python type of changes.
#include "arguments.hpp"
#include "changes.hpp"

namespace pequod {

PyTypeObject* changes_type = nullptr;

namespace {

// The classes of a change and of an expired one: tuples of a key and two values. Python sets them once (`use_changes`).
PyObject* change_class = nullptr;
PyObject* expired_class = nullptr;

PyObject* or_none(PyObject* bytes) { return bytes ? bytes : Py_None; }

PyObject* as_python(const ToldChange& change) {
    PyObject* made_of = PyTuple_Pack(3, change.key, or_none(change.old), or_none(change.value));
    PyObject* arguments = made_of ? PyTuple_Pack(1, made_of) : nullptr;
    PyTypeObject* type = reinterpret_cast<PyTypeObject*>(change.is_expired ? expired_class : change_class);
    PyObject* made = arguments ? PyTuple_Type.tp_new(type, arguments, nullptr) : nullptr;
    Py_XDECREF(arguments);
    Py_XDECREF(made_of);
    return made;
}

bool are_classes_there() {
    if (!change_class) PyErr_SetString(PyExc_RuntimeError, "use_changes comes first");
    return change_class;
}

// append(change)
PyObject* changes_append(PyObject* self, PyObject* change) {
    const bool is_change = PyTuple_Check(change) && PyTuple_GET_SIZE(change) == 3 &&
                           PyBytes_CheckExact(PyTuple_GET_ITEM(change, 0)) && is_bound(PyTuple_GET_ITEM(change, 1)) &&
                           is_bound(PyTuple_GET_ITEM(change, 2));
    if (!are_classes_there() || !check_all(is_change, "a change is a key and two values, bytes or None"))
        return nullptr;
    PyObject *old = PyTuple_GET_ITEM(change, 1), *value = PyTuple_GET_ITEM(change, 2);
    const bool is_expired = reinterpret_cast<PyObject*>(Py_TYPE(change)) == expired_class;
    if (!add_change(changes_of(self), PyTuple_GET_ITEM(change, 0), old == Py_None ? nullptr : old,
                    value == Py_None ? nullptr : value, is_expired)) {
        return nullptr;
    }
    Py_RETURN_NONE;
}

// tell(key, old, new): the same, with the key and the values of a change.
PyObject* changes_tell(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("tell", count, 3)) return nullptr;
    PyObject *key = arguments[0], *old = arguments[1], *value = arguments[2];
    if (!check_all(PyBytes_CheckExact(key) && is_bound(old) && is_bound(value), "tell takes bytes")) return nullptr;
    if (!add_change(changes_of(self), key, old == Py_None ? nullptr : old, value == Py_None ? nullptr : value)) {
        return nullptr;
    }
    Py_RETURN_NONE;
}

// text_bytes(): the bytes of the keys and of the values before, and those of the values after.
PyObject* changes_text_bytes(PyObject* self, PyObject*) {
    const Changes* changes = changes_of(self);
    size_t before = 0, after = 0;
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange& change = changes->items[at];
        before += piece_of(change.key).size + (change.old ? piece_of(change.old).size : 0);
        after += change.value ? piece_of(change.value).size : 0;
    }
    return Py_BuildValue("(nn)", Py_ssize_t(before), Py_ssize_t(after));
}

Py_ssize_t changes_length(PyObject* self) { return Py_ssize_t(changes_of(self)->count); }

PyObject* changes_item(PyObject* self, Py_ssize_t at) {
    const Changes* changes = changes_of(self);
    if (at >= 0 && size_t(at) < changes->count) return are_classes_there() ? as_python(changes->items[at]) : nullptr;
    PyErr_SetString(PyExc_IndexError, "there are fewer changes");
    return nullptr;
}

// part(start, stop): the changes from one place up to another, as a list.
PyObject* changes_part(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("part", count, 2)) return nullptr;
    const Py_ssize_t start = PyLong_AsSsize_t(arguments[0]), stop = PyLong_AsSsize_t(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(start >= 0 && start <= stop && stop <= changes_length(self), "a part is of what is there")) {
        return nullptr;
    }
    PyObject* list = PyList_New(0);
    for (Py_ssize_t at = start; list && at < stop; ++at) {
        if (!append(list, changes_item(self, at))) Py_CLEAR(list);
    }
    return list;
}

void changes_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    Changes* changes = changes_of(self);
    for (size_t at = 0; at < changes->count; ++at) {
        Py_DECREF(changes->items[at].key);
        Py_XDECREF(changes->items[at].old);
        Py_XDECREF(changes->items[at].value);
    }
    PyMem_Free(changes->items);
    type->tp_free(self);
    Py_DECREF(type);
}

// use_changes(change, expired): make changes of these classes from now on.
PyObject* use_changes(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("use_changes", count, 2)) return nullptr;
    for (Py_ssize_t at = 0; at < count; ++at) {
        if (!check_all(PyType_Check(arguments[at]) &&
                           PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[at]), &PyTuple_Type),
                       "changes are tuples")) {
            return nullptr;
        }
    }
    Py_XSETREF(change_class, Py_NewRef(arguments[0]));
    Py_XSETREF(expired_class, Py_NewRef(arguments[1]));
    Py_RETURN_NONE;
}

// encode_changes(head, changes, numbers, counts): see the function of this name.
PyObject* encode(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("encode_changes", count, 4)) return nullptr;
    if (!check_all(PyBytes_CheckExact(arguments[0]) && is_changes(arguments[1]) && PyList_CheckExact(arguments[2]) &&
                       PyList_CheckExact(arguments[3]),
                   "encode_changes takes bytes, changes and two lists")) {
        return nullptr;
    }
    return encode_changes(piece_of(arguments[0]), changes_of(arguments[1]), arguments[2], arguments[3]);
}

PyMethodDef methods[] = {
    {"append", changes_append, METH_O, "Add a change."},
    {"tell", as_function(changes_tell), METH_FASTCALL, "Add a change by its key and values."},
    {"part", as_function(changes_part), METH_FASTCALL, "Return the changes from one place up to another."},
    {"text_bytes", changes_text_bytes, METH_NOARGS, "Return the bytes of keys and old values, and of new ones."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef functions[] = {
    {"use_changes", as_function(use_changes), METH_FASTCALL, "Make changes of these classes from now on."},
    {"encode_changes", as_function(encode), METH_FASTCALL, "Return a message with changes as columns."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Changes of keys, in their order.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(changes_dealloc)},
    {Py_tp_methods, methods},
    {Py_sq_length, reinterpret_cast<void*>(changes_length)},
    {Py_sq_item, reinterpret_cast<void*>(changes_item)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Changes", sizeof(Changes), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                    slots};

}  // namespace

int add_changes_type(PyObject* module) {
    changes_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!changes_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "Changes", reinterpret_cast<PyObject*>(changes_type));
}

}  // namespace pequod
