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
PyObject* or_null(PyObject* bytes) { return bytes == Py_None ? nullptr : bytes; }

PyObject* as_python(const Changes* changes, const ToldChange& change) {
    PyObject* key = concatenated(changes->key(change), {"", 0}, {"", 0});
    PyObject* made_of = key ? PyTuple_Pack(3, key, or_none(change.old), or_none(change.value)) : nullptr;
    PyObject* arguments = made_of ? PyTuple_Pack(1, made_of) : nullptr;
    PyTypeObject* type = reinterpret_cast<PyTypeObject*>(change.is_expired ? expired_class : change_class);
    PyObject* made = arguments ? PyTuple_Type.tp_new(type, arguments, nullptr) : nullptr;
    Py_XDECREF(arguments);
    Py_XDECREF(made_of);
    Py_XDECREF(key);
    return made;
}

bool are_classes_there() {
    if (!change_class) PyErr_SetString(PyExc_RuntimeError, "use_changes comes first");
    return change_class;
}

// The run that was begun last; at first that of range 0. -1: an error is set.
int64_t last_run(Changes* changes) {
    if (!changes->run_count && !begin_run(changes, 0)) return -1;
    return int64_t(changes->run_count) - 1;
}

// append(change)
PyObject* changes_append(PyObject* self, PyObject* change) {
    const int64_t run = last_run(changes_of(self));
    if (run < 0 || !add_python_change(changes_of(self), uint32_t(run), change)) return nullptr;
    Py_RETURN_NONE;
}

// tell(key, old, new): the same, with the key and the values of a change.
PyObject* changes_tell(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    const int64_t run = last_run(changes_of(self));
    if (run < 0 || !add_told(changes_of(self), uint32_t(run), arguments, count)) return nullptr;
    Py_RETURN_NONE;
}

// begin_run(number): the changes that follow are those of another range.
PyObject* changes_begin_run(PyObject* self, PyObject* argument) {
    const unsigned long number = PyLong_AsUnsignedLong(argument);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(number <= UINT32_MAX, "ranges have small numbers")) return nullptr;
    if (!begin_run(changes_of(self), uint32_t(number))) return nullptr;
    Py_RETURN_NONE;
}

// runs(): the numbers of the ranges, each with the number of its changes.
PyObject* changes_runs(PyObject* self, PyObject*) {
    const Changes* changes = changes_of(self);
    PyObject* list = PyList_New(0);
    for (uint32_t at = 0; list && at < changes->run_count; ++at) {
        if (!changes->runs[at].count) continue;
        if (!append(list, Py_BuildValue("(II)", changes->runs[at].number, changes->runs[at].count))) Py_CLEAR(list);
    }
    return list;
}

// take(): all changes, as a list; none is left.
PyObject* changes_take(PyObject* self, PyObject*) {
    PyObject* list = PyList_New(0);
    Changes* changes = changes_of(self);
    for (size_t at = 0; list && at < changes->count; ++at) {
        if (!append(list, change_at(changes, at))) Py_CLEAR(list);
    }
    if (list) clear(changes);
    return list;
}

// text_bytes(): the bytes of the keys and of the values before, and those of the values after.
PyObject* changes_text_bytes(PyObject* self, PyObject*) {
    const Changes* changes = changes_of(self);
    return Py_BuildValue("(nn)", Py_ssize_t(changes->before_bytes), Py_ssize_t(changes->after_bytes));
}

Py_ssize_t changes_length(PyObject* self) { return Py_ssize_t(changes_of(self)->count); }

PyObject* changes_item(PyObject* self, Py_ssize_t at) {
    const Changes* changes = changes_of(self);
    if (at >= 0 && size_t(at) < changes->count) return change_at(changes, size_t(at));
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
    clear(changes_of(self));
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

// encode_changes(head, changes): see the function of this name.
PyObject* encode(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("encode_changes", count, 2)) return nullptr;
    if (!check_all(PyBytes_CheckExact(arguments[0]) && is_changes(arguments[1]) && !changes_of(arguments[1])->is_mixed,
                   "encode_changes takes bytes and changes that were taken")) {
        return nullptr;
    }
    return encode_changes(piece_of(arguments[0]), changes_of(arguments[1]));
}

PyMethodDef methods[] = {
    {"append", changes_append, METH_O, "Add a change."},
    {"tell", as_function(changes_tell), METH_FASTCALL, "Add a change by its key and values."},
    {"begin_run", changes_begin_run, METH_O, "Have the changes that follow be those of another range."},
    {"runs", changes_runs, METH_NOARGS, "Return the numbers of the ranges, each with the number of its changes."},
    {"take", changes_take, METH_NOARGS, "Return all changes, and keep none."},
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

bool add_python_change(Changes* changes, uint32_t run, PyObject* change) {
    const bool is_change = PyTuple_Check(change) && PyTuple_GET_SIZE(change) == 3 &&
                           PyBytes_CheckExact(PyTuple_GET_ITEM(change, 0)) && is_bound(PyTuple_GET_ITEM(change, 1)) &&
                           is_bound(PyTuple_GET_ITEM(change, 2));
    if (!are_classes_there() || !check_all(is_change, "a change is a key and two values, bytes or None")) return false;
    const bool is_expired = reinterpret_cast<PyObject*>(Py_TYPE(change)) == expired_class;
    return add_change(changes, run, piece_of(PyTuple_GET_ITEM(change, 0)), {"", 0},
                      or_null(PyTuple_GET_ITEM(change, 1)), or_null(PyTuple_GET_ITEM(change, 2)), is_expired);
}

bool add_told(Changes* changes, uint32_t run, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("tell", count, 3)) return false;
    PyObject *key = arguments[0], *old = arguments[1], *value = arguments[2];
    return check_all(PyBytes_CheckExact(key) && is_bound(old) && is_bound(value), "tell takes bytes") &&
           add_change(changes, run, piece_of(key), {"", 0}, or_null(old), or_null(value));
}

PyObject* change_at(const Changes* changes, size_t at) {
    return are_classes_there() ? as_python(changes, changes->items[at]) : nullptr;
}

int add_changes_type(PyObject* module) {
    changes_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!changes_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "Changes", reinterpret_cast<PyObject*>(changes_type));
}

}  // namespace pequod
