// Rows as Python has them: `Rows`, a named tuple of a list of keys and one of values.
#pragma once

#include "rows.hpp"

namespace pequod {

// A tuple of a class of named tuples, its items null; null: an error is set. Python 3.14 remembers a tuple's hash, and
// the class's allocator leaves there 0, which would be taken for the hash.
inline PyObject* new_tuple(PyTypeObject* type, Py_ssize_t size) {
    PyObject* made = type->tp_alloc(type, size);
#if PY_VERSION_HEX >= 0x030e0000
    if (made) reinterpret_cast<PyTupleObject*>(made)->ob_hash = -1;
#endif
    return made;
}

// `Rows` of two lists, whose references are taken; null, with an error set, if one is null.
PyObject* make_rows(PyObject* keys, PyObject* values);

// `Rows` of `count` rows from `start` on, with a prefix before each key; downwards if `step` is -1: then `start` is the
// place behind the first one. Null: an error is set.
PyObject* list_rows(SortedRows* rows, Place start, size_t count, int step, Piece prefix);

// A limit of rows, None or null for none; false: an error is set.
bool read_limit(PyObject* limit, size_t* most);

int add_row_lists(PyObject* module);

}  // namespace pequod
