// Ranges of keys that Python hands over: what a role may read or write, or the keys that a home takes.
#pragma once

#include "rows.hpp"

namespace pequod {

// Ranges of keys as Python lists of where they start and end, which ascend and do not touch.
struct KeyRanges {
    PyObject* starts;
    PyObject* ends;

    bool is_sound() const {
        if (PyList_GET_SIZE(starts) != PyList_GET_SIZE(ends)) return false;
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(starts); ++at) {
            PyObject* end = PyList_GET_ITEM(ends, at);
            if (!PyBytes_CheckExact(PyList_GET_ITEM(starts, at))) return false;
            if (end != Py_None && !PyBytes_CheckExact(end)) return false;
        }
        return true;
    }

    // The end of the range in which a key is; null: it is in none.
    PyObject* end_of(Piece key) const {
        Py_ssize_t low = 0, high = PyList_GET_SIZE(starts);
        while (low < high) {
            const Py_ssize_t middle = low + (high - low) / 2;
            if (compare(piece_of(PyList_GET_ITEM(starts, middle)), key) <= 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        PyObject* end = low ? PyList_GET_ITEM(ends, low - 1) : nullptr;
        return end && (end == Py_None || compare(key, piece_of(end)) < 0) ? end : nullptr;
    }

    bool holds(Piece key) const { return end_of(key); }

    // A last without bytes is none.
    bool covers(Piece first, Piece last) const {
        if (last.size && compare(last, first) <= 0) return true;
        PyObject* end = end_of(first);
        return end && (end == Py_None || (last.size && compare(last, piece_of(end)) <= 0));
    }
};

// Take the ranges of a pair of lists, which has to stay; false: it is no such pair.
inline bool read_ranges(PyObject* pair, KeyRanges* ranges) {
    return PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 &&
           PyList_CheckExact(ranges->starts = PyTuple_GET_ITEM(pair, 0)) &&
           PyList_CheckExact(ranges->ends = PyTuple_GET_ITEM(pair, 1)) && ranges->is_sound();
}

}  // namespace pequod
