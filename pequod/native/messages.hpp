// Messages of batches on the wire, as proto/pequod/v1/pequod.proto has them: read and written.
#pragma once

#include "kinds.hpp"
#include "rows.hpp"

namespace pequod {

// The greatest number of bytes of a number; and of a length or a tag, which protobuf refuses with more.
constexpr size_t VARINT_MAX = 10, LENGTH_MAX = 5;

// Tags: number of the field, and 0 a varint, 1 fixed 64 bits, 2 a length and as many bytes.
enum RequestTag : unsigned char {
    BATCH = 0x08,
    KINDS = 0x12,
    ARGUMENT = 0x1a,
    NUMBER = 0x20,
    NUMBERS = 0x22,
    FRESHNESS = 0x2a,
    TRACE_PARENT = 0x42,
    TRACE_STATE = 0x4a,
    BATCH_ID = 0x62,
    BATCH_POSITIONS = 0x6a,
};
enum LevelTag : unsigned char { AFTER = 0x0a, LATEST = 0x10, MAX_AGE_MS = 0x18, WAIT_MS = 0x20 };
enum ReplyTag : unsigned char {
    REPLY_BATCH = 0x08,
    STATUSES = 0x12,
    KEY = 0x1a,
    VALUE = 0x22,
    COUNTS = 0x2a,
    ERROR = 0x32,
    SERVER_ID = 0x39,
    REVISION = 0x40,
    TOKEN = 0x52,
    AGE_MS = 0x58,
};

// Reads a message; `is_right` is false from the first thing on that is not as expected.
struct Reader {
    const unsigned char* at;
    const unsigned char* end;
    bool is_right = true;

    uint64_t varint() {
        uint64_t value = 0;
        for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
            const unsigned char byte = *at++;
            if (shift == 63 && byte > 1) break;
            value |= uint64_t(byte & 0x7f) << shift;
            if (!(byte & 0x80)) return value;
        }
        is_right = false;
        return 0;
    }

    // A number that protobuf reads as a length or a tag.
    uint64_t length() {
        if (at < end && *at < 0x80) return *at++;
        const unsigned char* start = at;
        const uint64_t value = varint();
        if (size_t(at - start) > LENGTH_MAX) is_right = false;
        return value;
    }

    Piece piece() {
        const uint64_t size = length();
        if (!is_right || size > uint64_t(end - at)) {
            is_right = false;
            return {nullptr, 0};
        }
        const Piece found = {reinterpret_cast<const char*>(at), size_t(size)};
        at += size;
        return found;
    }
};

inline char* write_varint(char* to, uint64_t value) {
    while (value >= 0x80) {
        *to++ = char(value | 0x80);
        value >>= 7;
    }
    *to++ = char(value);
    return to;
}

inline char* write_piece(char* to, unsigned char tag, Piece a, Piece b = {nullptr, 0}) {
    *to++ = char(tag);
    to = write_varint(to, a.size + b.size);
    std::memcpy(to, a.start, a.size);
    if (b.size) std::memcpy(to + a.size, b.start, b.size);
    return to + a.size + b.size;
}

// Append an item to an array; false: there is no memory.
template <typename Item>
bool add(Item** items, size_t* count, size_t* room, Item item) {
    if (*count == *room) {
        const size_t roomy = *room * 2 + 64;
        Item* grown = static_cast<Item*>(PyMem_Realloc(*items, roomy * sizeof(Item)));
        if (!grown) return false;
        *items = grown;
        *room = roomy;
    }
    (*items)[(*count)++] = item;
    return true;
}

}  // namespace pequod
