// The outer fields of a record, read from the bytes of its JSON.
//
//     {"author": "bob", "stock": 3, "tags": ["red"]}     author -> the text bob     stock -> the integer 3
//
// Read is what is usual. All else is Python's, which reads all of JSON: values that are no object, numbers with an
// exponent or many digits, `\u` in texts, escapes in names, and what is nested deep or is no JSON.
#pragma once

#include "rows.hpp"

namespace pequod {

struct Field {
    // OTHER: a text with escapes, a number that is no plain integer, or an array.
    enum Kind : unsigned char { MISSING, TEXT, INTEGER, BOOLEAN, NOTHING, OTHER, OBJECT };

    Kind kind;
    // As it stands there, of a text without its quotes.
    Piece text;
};

// Find the fields of these names; false: the value is not usual. Of several fields with one name the last one counts.
bool read_fields(Piece value, const Piece* names, size_t count, Field* found);
// The same of the beginning of a value, up to where all have been found. What comes behind it may be anything.
bool read_first_fields(Piece value, const Piece* names, size_t count, Field* found);

}  // namespace pequod
