// Routes: from a key that is written to those who wait for it, at one site (`Site` in
// pequod/engine/joins/installed.py).
//
//     p|bob|0000000120   parts "p|", up to "|", "|", 10 bytes   frame p|bob|   tail of the rows 0000000120|bob
#pragma once

#include "frames.hpp"
#include "parts.hpp"

namespace pequod {

struct Route {
    PyObject_HEAD
    // Those who wait; owned.
    Frames* frames;
    Part parts[PARTS_MAX];
    size_t part_count;
    // How many parts are in the frame's key.
    size_t frame_part_count;
    // Of the rows that a key of the value source makes; none of a check.
    MadePiece tail[PARTS_MAX];
    size_t tail_count;
    // The number of the source.
    int depth;
    // Whether only the presence of a key counts, whose changes are noted in the logs of those who wait.
    char is_check;
    // Whether rows are counted, and not copied.
    char is_count;
    // Whether others are told of the rows that change: then they are Python's to change, unless watches are all who are
    // told, or other joins, and the value is copied as it is.
    char is_followed;
    char tells_watches;
    char tells_joins;
};

// A site, as writes look at it: `HotSite`, a base of `Site`.
struct HotSite {
    PyObject_HEAD
    // A route; None: Python tells those who wait.
    PyObject* route;
    // The watches of the rows that follow, a tuple; None: nobody watches them, or `WatchIndex` finds those who do.
    PyObject* told;

    template <typename Function>
    int each(Function function) {
        const int result = function(&route);
        return result ? result : function(&told);
    }
};

extern PyTypeObject* site_type;

inline HotSite* site_of(PyObject* object) { return reinterpret_cast<HotSite*>(object); }

// A key as the parts of a route.
struct Match {
    Piece parts[PARTS_MAX];
};

extern PyTypeObject* route_type;

// Those who wait for changes of a key; null: there are none, or the key is not of this source.
Waiting* waiting_at(const Route* route, Piece key, Match* match);

// The tail of the rows that follow from a key; null: an error is set.
PyObject* tail_of(const Route* route, const Match& match);

int add_route_type(PyObject* module);

}  // namespace pequod
