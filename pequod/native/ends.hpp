// Contexts by the ends of reads: the twin of `Ends` in pequod/engine/joins/hits.py.
#pragma once

#include "contexts.hpp"
#include "places.hpp"

namespace pequod {

struct End {
    size_t hash;
    // All owned; the last key of reads, exact `bytes`.
    PyObject* last;
    PyObject* context;
    // That whose keys the context computes.
    PyObject* table;

    bool is_free() const { return !context; }
    Piece key() const { return piece_of(last); }
};

// Contexts by the ends of reads that they answered.
struct Ends {
    PyObject_HEAD
    Places<End> table;
};

extern PyTypeObject* ends_type;

int add_ends_type(PyObject* module);

}  // namespace pequod
