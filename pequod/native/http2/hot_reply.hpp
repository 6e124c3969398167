// What the replies of hot calls have in common.
#pragma once

#include "hot_calls.hpp"

namespace pequod::http2 {

// Fields that the requests of most methods have: number, and 0 a varint, 1 fixed 64 bits, 2 bytes.
enum RequestTag : unsigned char { FIRST = 0x0a, SECOND = 0x12 };
enum HotReplyTag : unsigned char {
    VALUE_OF = 0x12,
    NUMBER_OF = 0x10,
    KEYS_OF = 0x12,
    VALUES_OF = 0x1a,
    RESUME_KEY = 0x22,
    PRESENT_OF = 0x1a
};

// The first of the two fields of writes that say how long a key lives; the second one is the next.
constexpr unsigned char TTL_MS_OF_PUT = 0x18, TTL_MS_OF_WRITE_IF = 0x28, NEXT_FIELD = 0x08;

// What a request says of the time that its keys live.
struct Time {
    uint64_t set_ms = 0, is_kept = 0;
    bool has_set = false, has_kept = false;

    // Whether a field is one of the two, for the first time; `first` is the tag of the first one.
    bool read(Reader* reader, unsigned char tag, unsigned char first) {
        if (tag != first && tag != first + NEXT_FIELD) return false;
        bool& has = tag == first ? has_set : has_kept;
        if (has) return false;
        has = true;
        (tag == first ? set_ms : is_kept) = reader->varint();
        return reader->is_right;
    }

    // Whether it is a time or none; which of the two is meant is Python's to ask.
    bool is_one() const { return !is_kept || !set_ms; }

    uint64_t ttl_ms() const { return is_kept ? KEEP_TTL : set_ms; }
};

// Begin the reply of a call, with its header and room for as many further bytes; null: there is no memory.
char* begin_reply(const HotTurn& turn, Stream* stream, size_t more);

// The reply ends here: say how long it is.
Ran end_reply(Stream* stream, const char* end);

// Answer a call of many keys, as `hot_answer`.
Ran answer_keys(const HotTurn& turn, const HotRights& rights, HotMethod method, Piece message, Stream* stream);

}  // namespace pequod::http2
