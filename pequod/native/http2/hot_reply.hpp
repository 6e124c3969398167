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

// Begin the reply of a call, with its header and room for as many further bytes; null: there is no memory.
char* begin_reply(const HotTurn& turn, Stream* stream, size_t more);

// The reply ends here: say how long it is.
Ran end_reply(Stream* stream, const char* end);

// Answer a call of many keys, as `hot_answer`.
Ran answer_keys(const HotTurn& turn, const HotRights& rights, HotMethod method, Piece message, Stream* stream);

}  // namespace pequod::http2
