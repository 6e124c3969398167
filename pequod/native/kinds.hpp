// The kinds of commands: the table of pequod/commands/kinds.py again, which a test holds this one to.
#pragma once

#include <cstddef>
#include <iterator>

namespace pequod {

enum Kind : unsigned char { GET = 1, PUT, REMOVE, SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT };
enum Status : char { ABSENT = 1, FAILED = 2 };
enum class Gives : unsigned char { VALUE, NOTHING, WAS_THERE, ROWS, COUNT };

struct KindRow {
    unsigned char argument_count;
    unsigned char number_count;
    // It looks at a range, whose bounds are its arguments, and not at the key that is its first argument.
    bool is_of_range;
    bool is_write;
    Gives gives;
};

// By kind; nothing is of kind 0.
constexpr KindRow KIND_ROWS[] = {
    {0, 0, false, false, Gives::NOTHING},  {1, 0, false, false, Gives::VALUE},  // GET
    {2, 0, false, true, Gives::NOTHING},                                        // PUT
    {1, 0, false, true, Gives::WAS_THERE},                                      // REMOVE
    {2, 0, true, false, Gives::ROWS},                                           // SCAN
    {2, 1, true, false, Gives::ROWS},                                           // SCAN_LIMIT
    {2, 1, true, false, Gives::ROWS},                                           // SCAN_DOWN
    {2, 0, true, false, Gives::COUNT},                                          // COUNT
};

inline bool is_kind(unsigned char kind) { return kind && kind < std::size(KIND_ROWS); }

}  // namespace pequod
