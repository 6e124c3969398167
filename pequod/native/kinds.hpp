// The kinds of commands that run natively. The table of all kinds is pequod/commands/kinds.py, which Python hands over
// when it loads the core: a kind that is not named here is read, judged and answered all the same, by `answer`.
#pragma once

#include <cstddef>

namespace pequod {

enum Kind : unsigned char {
    GET = 1,
    PUT,
    REMOVE,
    SCAN,
    SCAN_LIMIT,
    SCAN_DOWN,
    COUNT,
    PUT_IF,
    REMOVE_IF,
    ADD,
    PUT_TTL,
    EXPIRE,
    TTL
};
enum Status : char { ABSENT = 1, FAILED = 2, UNMET = 4 };
enum class Gives : unsigned char { VALUE, NOTHING, WAS_THERE, ROWS, COUNT, MET, REMAINING };

struct KindRow {
    unsigned char argument_count;
    unsigned char number_count;
    // It looks at a range, whose bounds are its arguments, and not at the key that is its first argument.
    bool is_of_range;
    bool is_write;
    Gives gives;
};

static_assert(sizeof(KindRow) == 5, "five bytes, as Python hands a row over");

// By the byte that stands for the kind; what is no kind takes no argument. Only use_kinds changes it.
extern KindRow KIND_ROWS[256];

// A batch takes no more arguments than this for each of its commands.
constexpr size_t ARGUMENTS_MAX = 3;
// And no more numbers.
constexpr size_t NUMBERS_MAX = 2;

// Whether a write tells of the present value of its key, as a read would.
inline bool tells_value(const KindRow& row) {
    return row.is_write && (row.gives == Gives::MET || row.gives == Gives::VALUE);
}

inline bool is_kind(unsigned char kind) { return KIND_ROWS[kind].argument_count; }

}  // namespace pequod
