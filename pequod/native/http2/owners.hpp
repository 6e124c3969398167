// Which servers compute the group of a key: the twin of pequod/cluster/grouping.py, and of `owners` and `reader` in
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
    // Tuples of pairs: the ids of servers, as bytes, with their weights; prefixes with their levels, the longest first;
    // and the same prefixes with the number of servers that share the reads of a group.
    PyObject *servers, *placements, *spreads;
    // The hashes that are keyed by the ids of the servers, and room for those of a group, and for its scores; see
    // ranks.hpp.
    uint64_t *keyed, *hashes;
    double* scores;

    size_t server_count() const { return size_t(PyTuple_GET_SIZE(servers)); }
    Piece id_at(size_t server) const {
        return piece_of(PyTuple_GET_ITEM(PyTuple_GET_ITEM(servers, Py_ssize_t(server)), 0));
    }
    Group group_of(Piece key) const;
    // The place among the servers of the owner of a key's group; -1: the group is so long that Python has to say.
    Py_ssize_t owner_of(Piece key) const;
    // The place of the server that answers reads which come to the one at `own`; -1: as `owner_of`.
    //
    // REQUIRES: there is a server at `own`.
    Py_ssize_t reader_of(Piece key, Py_ssize_t own) const;

  private:
    // The place of the first placement that a key, or a group, is of; -1: none.
    Py_ssize_t placement_of(Piece key) const;
    // Find the scores of a key's group; return its bytes, written into `text`, none: it is too long.
    Piece ranked(Piece key, char* text) const;
    // The server that comes first by the scores.
    size_t first() const;
    // Whether one server comes before another one, by the scores.
    bool is_before(size_t server, size_t other) const {
        if (scores[server] != scores[other]) return scores[server] > scores[other];
        return compare(id_at(server), id_at(other)) > 0;
    }
    // How many servers come before one.
    size_t place_of(size_t server) const;
};

extern PyTypeObject* owners_type;

int add_owners_type(PyObject* module);

}  // namespace pequod::http2
