// The quick half of a lens (`Lens` in pequod/language/records.py): the plain key of a record whose fields are as usual,
// and the value of its plain row.
#pragma once

#include "fields.hpp"
#include "parts.hpp"

namespace pequod {

// A field that gives a slot its value.
struct Bind {
    // A str, owned; null: the value itself.
    PyObject* name;
    // As that of a part.
    size_t width;
    // Whether integers are written as the digits that sort as they do: `<x:i64>`.
    int is_i64;
};

// A field of those that a source gives: `"name":`, owned; null: the one that is given by itself.
struct Given {
    PyObject* begin;
    // A str, owned.
    PyObject* name;
    // The name of a field within that field, a str, owned, and its bytes; null: the field itself is given.
    PyObject* inner;
    Piece inner_name;
};

struct QuickLens {
    PyObject_HEAD
    // Of the table's keys.
    Part parts[PARTS_MAX];
    size_t part_count;
    Bind binds[PARTS_MAX];
    size_t bind_count;
    // Of the plain key; the fields come after the parts.
    MadePiece plain[PARTS_MAX];
    size_t plain_count;
    size_t text_bytes_max;
    // What a plain row has as its value: the table's own one, no bytes, one field, or an object of some; or something
    // that Python makes.
    enum { OWN, EMPTY, ONE_FIELD, SOME_FIELDS, PYTHON } gives;
    Given given[PARTS_MAX];
    size_t given_count;
    // The names of the fields of `binds` and of `given`, which own them, in this order.
    Piece names[2 * PARTS_MAX];
};

extern PyTypeObject* lens_type;

// The plain row of a row of the table; both references are owned.
struct Shown {
    PyObject* key;
    PyObject* value;
};

// Show a row without Python; false: something is not as usual, or an error is set.
// REQUIRES: key and value are exact `bytes`.
bool show(const QuickLens* lens, PyObject* key, PyObject* value, Shown* shown);

// The plain key, new, that a row of the table shows if it shows one; null: it is unknown, or an error is set.
PyObject* likely_key(const QuickLens* lens, PyObject* key, PyObject* value);

// The plain key of a row, new, and its record, new, which Python parses; null: something is not as usual, or an error
// is set.
PyObject* plain_key(const QuickLens* lens, PyObject* key, PyObject* value, PyObject* parse, PyObject** record);

int add_lens_type(PyObject* module);

}  // namespace pequod
