// Fields of headers as nghttp2 takes them.
#pragma once

#include "../rows.hpp"
#include "nghttp2.hpp"

namespace pequod::http2 {

// Fields of a caller in one block, beside those that stand first.
constexpr size_t FIELDS_MAX = 64, FIRST_FIELDS_MAX = 10;

// nghttp2 takes pointers to bytes that it does not change.
inline uint8_t* bytes_of(const char* start) { return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(start)); }

inline Field field_of(Piece name, Piece value, uint8_t flags) {
    return {bytes_of(name.start), bytes_of(value.start), name.size, value.size, flags};
}

template <size_t N, size_t M>
Field static_field(const char (&name)[N], const char (&value)[M]) {
    return field_of({name, N - 1}, {value, M - 1}, FIELD_STATIC);
}

// Append fields of a list of pairs of bytes, of which there may be none.
inline size_t add_fields(Field* fields, size_t count, PyObject* pairs) {
    for (Py_ssize_t at = 0; pairs && at < PyList_GET_SIZE(pairs) && count < FIELDS_MAX; ++at) {
        PyObject* pair = PyList_GET_ITEM(pairs, at);
        const Piece name = piece_of(PyTuple_GET_ITEM(pair, 0)), value = piece_of(PyTuple_GET_ITEM(pair, 1));
        fields[count++] = field_of(name, value, FIELD_NONE);
    }
    return count;
}

inline bool is_list_of_pairs(PyObject* object) {
    if (!PyList_CheckExact(object)) return false;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(object); ++at) {
        PyObject* pair = PyList_GET_ITEM(object, at);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
        if (!PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0)) || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 1)))
            return false;
    }
    return true;
}

}  // namespace pequod::http2
