// Frames without extras, by frame key: the twin of `Frames` in pequod/engine/joins/frames.py for those.
//
//     frames   p|bob|  ->  t|ann|, t|liz|        those who wait, by ascending numbers: 4 bytes each
//              s|ann|  ->  t|ann|
//     t|ann|   ->  s|ann|, p|bob|                where it waits, by number as well
//
// Those who wait are borrowed references, and a context holds where it waits: so nothing of this is the garbage
// collector's to look at, however many timelines there are. A context lets go of all before it ends. To come or to
// leave takes the time to find its place among those who wait, and to move those behind it: 1 us for each 10,000.
#pragma once

#include "contexts.hpp"
#include "places.hpp"
#include "registers.hpp"

namespace pequod {

struct Frames;

// Who waits at one frame key, which lies behind the rest: a look-up that finds it has the key in the next cache line.
struct Waiting {
    PyObject_VAR_HEAD
    // The numbers of those who wait, ascending.
    uint32_t* numbers;
    uint32_t count;
    uint32_t room;
    // Its own.
    uint32_t number;
    // Null once the frames are gone.
    Frames* frames;
    // Tails that fan-outs from here made, one for all contexts.
    long long tail_bytes;
    char key_start[1];

    Piece key() const { return {key_start, size_t(Py_SIZE(this))}; }
    inline Hot* context(uint32_t at) const;
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
    // The frame keys in order, without values, owned; null: nobody asks for ranges of them.
    SortedRows* order;
};

extern PyTypeObject* waiting_type;
// The contexts that wait anywhere, and where they wait, by their numbers.
extern Register<Hot> waiting_contexts;
extern Register<Waiting> waiting_places;
extern PyTypeObject* frames_type;

inline Hot* Waiting::context(uint32_t at) const { return waiting_contexts.at(numbers[at]); }

inline Frames* frames_of(PyObject* self) { return reinterpret_cast<Frames*>(self); }
inline Waiting* waiting_of(PyObject* self) { return reinterpret_cast<Waiting*>(self); }

// Whether a context with this number waits there; 0 is that of none.
bool does_wait(const Waiting* waiting, uint32_t number);

// Let a context no longer wait at one frame, where it does; return by how many bytes that changes what the ledger has.
long long leave(Waiting* waiting, Hot* hot);

// Those who wait at a frame key, or null.
Waiting* find_frame(const Frames* frames, Piece key);

// Let a context wait nowhere; return by how many bytes that changes what the ledger has.
long long let_go(Hot* hot);

// Let another context wait where one does; false: an error is set, and what was handed over so far stays so.
bool hand_over(Hot* from, Hot* to, long long* grown_bytes);

// Make room for the places where a context waits that waits nowhere: no more than these, as most timelines wait nowhere
// else later. False: an error is set.
bool reserve_held(Hot* hot, size_t count);

// Let a context wait at frames; false: an error is set, and it waits at some of them. What the ledger has is changed by
// `grown_bytes`.
bool wait_at_all(Frames* frames, const FrameKey* keys, size_t count, Hot* hot, long long* grown_bytes);

int add_frame_types(PyObject* module);

}  // namespace pequod
