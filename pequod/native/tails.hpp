// Tails that rows of several contexts have, one object of each: the twin of `Tails` in pequod/engine/joins/tails.py.
//
//     0120|bob  3 rows      0130|liz  1 row
//
// A tail takes 21 to 43 bytes here beside its object, 16 in each of its rows, and goes with the last of them.
#pragma once

#include "places.hpp"

namespace pequod {

struct TailPlace {
    // Owned, exact `bytes`.
    PyObject* tail;
    uint32_t hash;
    uint32_t row_count;

    bool is_free() const { return !tail; }
    Piece key() const { return piece_of(tail); }
};

// Invariants:
//   1. Each tail is once here, with the number of the rows that have it, which is above 0.
//   2. `tail_bytes` are the bytes of all tails.
struct Tails {
    PyObject_HEAD
    Places<TailPlace, 6> table;
    long long tail_bytes;
};

int add_tails_type(PyObject* module);

}  // namespace pequod
