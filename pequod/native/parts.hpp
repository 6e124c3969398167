// Parts of keys: a key is cut as its pattern says, and another one is put together of the pieces.
//
//     p|<poster>|<time:10>   parts "p|", up to "|", "|", 10 bytes
#pragma once

#include "rows.hpp"

#include <cstring>

namespace pequod {

constexpr size_t PARTS_MAX = 12;
constexpr char DELIMITER = '|';

struct Part {
    // Literal bytes, owned; null for a slot.
    PyObject* literal;
    // Of a slot; 0: it ends before the next delimiter.
    size_t width;
};

// A piece of what is put together: literal bytes, owned, or what stands at a part.
struct MadePiece {
    PyObject* literal;
    size_t part;
};

// At most PARTS_MAX parts, of a tuple; false: an error is set. Read are bytes; the width of a slot; None for a slot
// that ends before a delimiter.
bool read_parts(PyObject* tuple, Part* parts, size_t* count);

// The same for pieces: bytes, or the number of one of `part_count` parts.
bool read_pieces(PyObject* tuple, size_t part_count, MadePiece* pieces, size_t* count);

// Set an error, unless there is one; false.
bool refuse(const char* text);

template <typename Owner>
void clear_literals(Owner* owners, size_t count) {
    for (size_t at = 0; at < count; ++at) Py_CLEAR(owners[at].literal);
}

// Cut the bytes of a part from the front of a key; false: the key is of another pattern.
inline bool cut(const Part& part, Piece* rest, Piece* piece) {
    size_t size = part.width;
    if (part.literal) {
        if (!begins_with(*rest, piece_of(part.literal))) return false;
        size = piece_of(part.literal).size;
    } else if (!part.width) {
        const void* found = rest->size ? std::memchr(rest->start, DELIMITER, rest->size) : nullptr;
        size = found ? size_t(static_cast<const char*>(found) - rest->start) : rest->size;
        if (!size) return false;
    } else if (rest->size < part.width) {
        return false;
    }
    *piece = {rest->start, size};
    *rest = {rest->start + size, rest->size - size};
    return true;
}

// New bytes; null: an error is set.
PyObject* put_together(const MadePiece* pieces, size_t count, const Piece* parts);

}  // namespace pequod
