// Frames without extras, by frame key: the twin of `Frames` in pequod/engine/joins/contexts.py for those.
//
//     frames   p|bob|  ->  t|ann|, t|liz|        each knows its place in the other's list, so that either side
//              s|ann|  ->  t|ann|                finds and leaves the other at once
//
// Those who wait are borrowed references, and a context holds where it waits: so nothing of this is the garbage
// collector's to look at, however many timelines there are. A context lets go of all before it ends.
#pragma once

#include "contexts.hpp"
#include "places.hpp"

namespace pequod {

struct Frames;

// A context that waits: borrowed, and where this stands among what it holds.
struct __attribute__((packed)) Hold {
    Hot* context;
    uint32_t at;
};

// Who waits at one frame key, which lies behind the rest: a look-up that finds it has the key in the next cache line.
struct Waiting {
    PyObject_VAR_HEAD
    Hold* holds;
    uint32_t count;
    uint32_t room;
    // Null once the frames are gone.
    Frames* frames;
    // Tails that fan-outs from here made, one for all contexts.
    long long tail_bytes;
    char key_start[1];

    Piece key() const { return {key_start, size_t(Py_SIZE(this))}; }
};

// A frame key that is looked for.
struct FrameKey {
    Piece bytes;
    size_t hash;
};

struct FramePlace {
    size_t hash;
    // Owned.
    Waiting* waiting;

    bool is_free() const { return !waiting; }
    Piece key() const { return waiting->key(); }
};

struct Frames {
    PyObject_HEAD
    Places<FramePlace> table;
    // What the ledger counts for a frame, and for each context that waits at it.
    long long frame_bytes;
    long long hold_bytes;
};

extern PyTypeObject* waiting_type;
extern PyTypeObject* frames_type;

// Those who wait at a frame key, or null.
Waiting* find_frame(const Frames* frames, Piece key);

// Let a context wait nowhere; return by how many bytes that changes what the ledger has.
long long let_go(Hot* hot);

// Let another context wait where one does; false: an error is set, and what was handed over so far stays so.
bool hand_over(Hot* from, Hot* to, long long* grown_bytes);

// Let a context wait at frames; false: an error is set, and it waits at some of them. What the ledger has is changed by
// `grown_bytes`.
bool wait_at_all(Frames* frames, const FrameKey* keys, size_t count, Hot* hot, long long* grown_bytes);

int add_frame_types(PyObject* module);

}  // namespace pequod
