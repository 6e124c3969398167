// What writes with request ids gave, as bytes.
#include "outcomes.hpp"

#include "hash.hpp"

namespace pequod {

namespace {

// How a byte changes the sum, with 0 to 7 bytes behind it: eight bytes are taken at a time.
struct SumTables {
    uint32_t of[8][256];
};

constexpr SumTables sum_tables() {
    SumTables tables = {};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; ++bit) sum = sum & 1 ? sum >> 1 ^ 0xedb88320 : sum >> 1;
        tables.of[0][byte] = sum;
    }
    for (size_t behind = 1; behind < 8; ++behind) {
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t sum = tables.of[behind - 1][byte];
            tables.of[behind][byte] = sum >> 8 ^ tables.of[0][sum & 0xff];
        }
    }
    return tables;
}

constexpr SumTables TABLES = sum_tables();
// Kind, number, and the sizes of key and second argument, which say where one ends and the next begins.
constexpr size_t HEAD_SIZE = 1 + 8 + 4 + 4;

uint32_t sum_on(uint32_t sum, Piece piece) {
    const char* at = piece.start;
    const char* const end = at + piece.size;
    for (; end - at >= 8; at += 8) {
        const uint64_t word = word_at(at) ^ sum;
        // Written out: compilers do not unroll it.
        sum = TABLES.of[7][word & 0xff] ^ TABLES.of[6][word >> 8 & 0xff] ^ TABLES.of[5][word >> 16 & 0xff] ^
              TABLES.of[4][word >> 24 & 0xff] ^ TABLES.of[3][word >> 32 & 0xff] ^ TABLES.of[2][word >> 40 & 0xff] ^
              TABLES.of[1][word >> 48 & 0xff] ^ TABLES.of[0][word >> 56];
    }
    for (; at < end; ++at) sum = sum >> 8 ^ TABLES.of[0][(sum ^ static_cast<unsigned char>(*at)) & 0xff];
    return sum;
}

// Write the lowest four bytes of a number, the highest of them first.
char* write_four(char* to, uint64_t number) {
    uint32_t four = uint32_t(number);
#if __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
    four = __builtin_bswap32(four);
#endif
    std::memcpy(to, &four, sizeof four);
    return to + sizeof four;
}

}  // namespace

uint32_t check_of(const Write& write) {
    char head[HEAD_SIZE];
    head[0] = char(write.kind);
    write_four(write_four(write_four(write_four(head + 1, write.number >> 32), write.number), write.key.size),
               write.second.size);
    uint32_t sum = 0xffffffff;
    for (const Piece piece : {Piece{head, HEAD_SIZE}, write.key, write.second, write.third}) sum = sum_on(sum, piece);
    return ~sum;
}

bool add_outcome(Outcomes* outcomes, uint32_t number, const Write& write, unsigned char status, Piece value) {
    const size_t rest = 4 + 1 + value.size;
    char* to = outcomes->bytes.reserve(4 + 4 + rest);
    if (!to) return false;
    to = write_four(write_four(write_four(to, number), rest), check_of(write));
    *to++ = char(status);
    std::memcpy(to, value.start, value.size);
    outcomes->bytes.size += 4 + 4 + rest;
    ++outcomes->count;
    return true;
}

}  // namespace pequod
