// Plain integers as values, which the core adds by itself: signs and up to 18 digits, so that no sum overflows.
#pragma once

#include "rows.hpp"

#include <charconv>

namespace pequod {

constexpr size_t INTEGER_DIGITS = 18;
// A sum may have a digit more, and a sign.
constexpr size_t INTEGER_BYTES = INTEGER_DIGITS + 2;

// Read a text that is an integer; false: Python has to say what it is.
inline bool read_integer(Piece text, long long* number) {
    size_t at = text.size && (text.start[0] == '-' || text.start[0] == '+') ? 1 : 0;
    if (at == text.size || text.size - at > INTEGER_DIGITS) return false;
    const bool is_negative = text.start[0] == '-';
    *number = 0;
    for (; at < text.size; ++at) {
        if (text.start[at] < '0' || text.start[at] > '9') return false;
        *number = *number * 10 + (text.start[at] - '0');
    }
    if (is_negative) *number = -*number;
    return true;
}

// An integer as it is written.
struct Integer {
    char text[INTEGER_BYTES];
    size_t size = 0;

    void write(long long number) { size = size_t(std::to_chars(text, text + INTEGER_BYTES, number).ptr - text); }
    Piece piece() const { return {text, size}; }
};

}  // namespace pequod
