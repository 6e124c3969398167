// Which server computes the group of a key: the twin of pequod/cluster/grouping.py and of `owners` in
// pequod/cluster/rendezvous.py, for hot calls.
#pragma once

#include "../ranks.hpp"
#include "../rows.hpp"

namespace pequod::http2 {

// The group of a key: some bytes, with a bar behind them or not.
struct Group {
    Piece start;
    bool has_bar;
};

// `Owners`. What it has is never changed.
struct Owners {
    PyObject_HEAD
    // Tuples of pairs: the ids of servers, as bytes, with their weights; prefixes with their levels, the longest first.
    PyObject *servers, *placements;
    // The hashes that are keyed by the ids of the servers, and room for those of a group; see ranks.hpp.
    uint64_t *keyed, *hashes;

    size_t server_count() const { return size_t(PyTuple_GET_SIZE(servers)); }
    Piece id_at(size_t server) const {
        return piece_of(PyTuple_GET_ITEM(PyTuple_GET_ITEM(servers, Py_ssize_t(server)), 0));
    }
    Group group_of(Piece key) const;
    // The place of the owner among the servers; -1: the group is so long that Python has to say.
    Py_ssize_t owner_of(Piece key) const;
};

extern PyTypeObject* owners_type;

int add_owners_type(PyObject* module);

}  // namespace pequod::http2
