// What writes with request ids gave, as the server remembers it: server/pequod_server/once/outcomes.py reads and writes
// the same bytes.
//
//     number of the command, 4 bytes | size of the rest, 4 bytes | check, 4 bytes | status, 1 byte | sum, or value
#pragma once

#include "buffer.hpp"
#include "kinds.hpp"

namespace pequod {

// A request id: that of a batch, and in the last bytes, the highest first, the number of the command.
constexpr size_t BATCH_ID_BYTES = 12, REQUEST_ID_BYTES = 16;
// The status of a condition that held, beside those of replies.
constexpr unsigned char OK_STATUS = 0, MET_STATUS = 255;

// A write with an id; what its kind does not take is empty, or 0.
struct Write {
    unsigned char kind;
    uint64_t number;
    Piece key, second, third;
};

// The CRC-32 of zlib over a write: it tells the write from others that are sent with the same id by mistake.
uint32_t check_of(const Write& write);

// Outcomes, one behind the other. Only `add_outcome` changes them.
struct Outcomes {
    Buffer bytes;
    size_t count;
};

// Add what a write has given; false: an error is set.
bool add_outcome(Outcomes* outcomes, uint32_t number, const Write& write, unsigned char status, Piece value);

inline uint32_t number_in(Piece request_id) {
    uint32_t number = 0;
    for (size_t at = BATCH_ID_BYTES; at < REQUEST_ID_BYTES; ++at) {
        number = number << 8 | static_cast<unsigned char>(request_id.start[at]);
    }
    return number;
}

}  // namespace pequod
