// Bytes that grow: parts of replies, and what is remembered of writes.
#pragma once

#include "rows.hpp"

namespace pequod {

struct Buffer {
    char* start;
    size_t size;
    size_t room;

    // A place for `more` bytes; the caller adds to `size` what it writes there. Null: an error is set.
    char* reserve(size_t more) {
        if (room - size < more) {
            if (more > SIZE_MAX / 4 || size > SIZE_MAX / 4) return static_cast<char*>(nothing());
            const size_t roomy = (size + more) * 2 + 256;
            char* grown = static_cast<char*>(PyMem_Realloc(start, roomy));
            if (!grown) return static_cast<char*>(nothing());
            start = grown;
            room = roomy;
        }
        return start + size;
    }

    static void* nothing() { return PyErr_NoMemory(); }
};

}  // namespace pequod
