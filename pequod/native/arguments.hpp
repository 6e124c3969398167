// What functions look at before they use it: their arguments, which Python code may give as it likes.
#pragma once

#include "rows.hpp"

namespace pequod {

// A function that takes its arguments as an array, as Python's tables of methods want it.
template <typename Function>
PyCFunction as_function(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

inline bool check_count(const char* name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count == wanted) return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return false;
}

inline bool check_all(bool is_right, const char* text) {
    if (!is_right) PyErr_SetString(PyExc_TypeError, text);
    return is_right;
}

// Lists whose items are all exact bytes: what is looked at may then be anything but cannot be taken for what it is not.
inline bool is_bytes_list(PyObject* list) {
    if (!PyList_CheckExact(list)) return false;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); ++at) {
        if (!PyBytes_CheckExact(PyList_GET_ITEM(list, at))) return false;
    }
    return true;
}

inline bool is_bound(PyObject* object) { return object == Py_None || PyBytes_CheckExact(object); }

// Append to a list what is new; the reference is taken.
inline bool append(PyObject* list, PyObject* item) {
    if (!item) return false;
    const int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return !failed;
}

inline PyObject* concatenated(Piece a, Piece b, Piece c) {
    PyObject* joined = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(a.size + b.size + c.size));
    if (!joined) return nullptr;
    char* to = PyBytes_AS_STRING(joined);
    std::memcpy(to, a.start, a.size);
    std::memcpy(to + a.size, b.start, b.size);
    std::memcpy(to + a.size + b.size, c.start, c.size);
    return joined;
}

// What stands before or behind what a tail has of its source key: bytes, and None where the bound stands.
inline bool is_template(PyObject* parts) {
    if (!PyTuple_CheckExact(parts)) return false;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(parts); ++at) {
        if (!is_bound(PyTuple_GET_ITEM(parts, at))) return false;
    }
    return true;
}

inline size_t spelled_size(PyObject* parts, Piece bound) {
    size_t size = 0;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(parts); ++at) {
        PyObject* part = PyTuple_GET_ITEM(parts, at);
        size += part == Py_None ? bound.size : piece_of(part).size;
    }
    return size;
}

inline char* spell(char* to, PyObject* parts, Piece bound) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(parts); ++at) {
        PyObject* part = PyTuple_GET_ITEM(parts, at);
        const Piece piece = part == Py_None ? bound : piece_of(part);
        std::memcpy(to, piece.start, piece.size);
        to += piece.size;
    }
    return to;
}

}  // namespace pequod
