#include "row_lists.hpp"

#include <utility>

namespace pequod {

namespace {

// The class of what is returned: `Rows`, a named tuple.
PyTypeObject* result_type = nullptr;

}  // namespace

PyObject* make_rows(PyObject* keys, PyObject* values) {
    PyObject* rows = keys && values && result_type ? new_tuple(result_type, 2) : nullptr;
    if (!rows) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "use_rows has not been called");
        Py_XDECREF(keys);
        Py_XDECREF(values);
        return nullptr;
    }
    PyTuple_SET_ITEM(rows, 0, keys);
    PyTuple_SET_ITEM(rows, 1, values);
    return rows;
}

PyObject* list_rows(SortedRows* rows, Place start, size_t count, int step, Piece prefix) {
    PyObject* keys = PyList_New(Py_ssize_t(count));
    PyObject* values = PyList_New(Py_ssize_t(count));
    for (size_t done = 0; keys && values && done < count; ++done) {
        if (step < 0) {
            while (!start.at) start.at = rows->leaf(--start.leaf).size;
            --start.at;
        } else {
            while (start.at == rows->leaf(start.leaf).size) start = {start.leaf + 1, 0};
        }
        const Entry& entry = rows->leaf(start.leaf).entries[start.at];
        PyObject* key = entry.key;
        if (prefix.size) {
            const Piece tail = piece_of(key);
            key = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(prefix.size + tail.size));
            if (!key) {
                Py_CLEAR(keys);
                break;
            }
            std::memcpy(PyBytes_AS_STRING(key), prefix.start, prefix.size);
            std::memcpy(PyBytes_AS_STRING(key) + prefix.size, tail.start, tail.size);
        } else {
            Py_INCREF(key);
        }
        Py_INCREF(entry.value);
        PyList_SET_ITEM(keys, Py_ssize_t(done), key);
        PyList_SET_ITEM(values, Py_ssize_t(done), entry.value);
        if (step > 0) ++start.at;
    }
    return make_rows(keys, values);
}

bool read_limit(PyObject* limit, size_t* most) {
    *most = SIZE_MAX;
    if (!limit || limit == Py_None) return true;
    const Py_ssize_t asked = PyLong_AsSsize_t(limit);
    if (asked < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a limit is not below 0");
        return false;
    }
    *most = size_t(asked);
    return true;
}

namespace {

PyObject* use_rows(PyObject*, PyObject* type) {
    if (!PyType_Check(type) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "rows are tuples");
        return nullptr;
    }
    Py_XDECREF(std::exchange(result_type, reinterpret_cast<PyTypeObject*>(Py_NewRef(type))));
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"use_rows", use_rows, METH_O, "Return rows as this class of named tuples from now on."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_row_lists(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
