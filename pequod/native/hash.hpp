// The hash of a key: SipHash-1-3 (Aumasson and Bernstein, 2012), which Python's dictionaries use as well.
//
// Keys come from clients. The secret is drawn when the process starts, so no client can choose keys that collide, which
// would make a table a list. Python has no public function that hashes bytes which are no object.
#pragma once

#include "rows.hpp"

namespace pequod {

// Set once, before there is a table.
struct Secret {
    uint64_t first;
    uint64_t second;
};
extern Secret secret;

// Eight bytes as a number, the lowest first.
inline uint64_t word_at(const char* start) {
    uint64_t word;
    std::memcpy(&word, start, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// The last bytes, fewer than eight, as a number.
inline uint64_t last_word(const char* start, size_t size) {
    uint64_t word = 0;
    for (size_t at = 0; at < size; ++at) word |= uint64_t(static_cast<unsigned char>(start[at])) << (8 * at);
    return word;
}

struct SipState {
    uint64_t a, b, c, d;

    explicit SipState(Secret key)
        : a(key.first ^ 0x736f6d6570736575), b(key.second ^ 0x646f72616e646f6d), c(key.first ^ 0x6c7967656e657261),
          d(key.second ^ 0x7465646279746573) {}

    static uint64_t turned(uint64_t word, int bits) { return (word << bits) | (word >> (64 - bits)); }

    void round() {
        a += b;
        c += d;
        b = turned(b, 13) ^ a;
        d = turned(d, 16) ^ c;
        a = turned(a, 32);
        c += b;
        a += d;
        b = turned(b, 17) ^ c;
        d = turned(d, 21) ^ a;
        c = turned(c, 32);
    }

    void take(uint64_t word) {
        d ^= word;
        round();
        a ^= word;
    }

    uint64_t end() {
        c ^= 0xff;
        round();
        round();
        round();
        return (a ^ b) ^ (c ^ d);
    }
};

inline size_t hash_with(Secret key, Piece piece) {
    SipState state(key);
    const char* at = piece.start;
    for (const char* stop = at + (piece.size & ~size_t(7)); at < stop; at += 8) state.take(word_at(at));
    state.take(uint64_t(piece.size) << 56 | last_word(at, piece.size & 7));
    return size_t(state.end());
}

inline size_t hash_of(Piece key) { return hash_with(secret, key); }

int add_hash(PyObject* module);

}  // namespace pequod
