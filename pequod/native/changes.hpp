// Changes of keys that watches are told: the twin of `PythonChanges` in pequod/engine/joins/told.py.
//
//     items   run 0  key from 0  old  value     run 1  key from 4  old  value     run 0 ...
//     keys    t|1ax|9bt|2a...                   one buffer for all keys
//     runs    range 7, 2 changes                range 3, 1 change
//
// What many watches of one owner are told is in one of these, in the order in which it came; taken, it is run by run.
// Values are references, so that a value which many watches are told is there once; a key is of one row, and is copied.
#pragma once

#include "buffer.hpp"

namespace pequod {

// The references are owned; old and value are null where the key was or is absent.
struct ToldChange {
    size_t key_start;
    uint32_t key_size;
    uint32_t run : 31;
    // Whether it is gone since its deadline has come.
    uint32_t is_expired : 1;
    PyObject* old;
    PyObject* value;
};

// The changes of one range.
struct ToldRun {
    uint32_t number;
    uint32_t count;
};

// All that it holds is `bytes`, so it can be in no reference cycle and is not tracked by the garbage collector.
//
// Invariants:
//   1. The counts of the runs are the numbers of items that name them, and their sum is `count`.
//   2. Unless it is mixed, the items of a run stand together, in the order of the runs.
struct Changes {
    PyObject_HEAD
    ToldChange* items;
    size_t count;
    size_t room;
    Buffer keys;
    ToldRun* runs;
    uint32_t run_count;
    uint32_t run_room;
    bool is_mixed;
    // How often its runs went: what a lane knows of its run holds as long as it stays.
    uint64_t beat;
    // The bytes of keys and old values, and those of new ones.
    size_t before_bytes;
    size_t after_bytes;
    // The bytes of their columns in a message, except those of `kinds`, `ranges` and `counts`.
    size_t wire_bytes;
    // Room that the last ones took, for the next.
    size_t usual_count;
    size_t usual_bytes;

    Piece key(const ToldChange& change) const { return {keys.start + change.key_start, change.key_size}; }
};

extern PyTypeObject* changes_type;

inline bool is_changes(PyObject* object) { return object && Py_TYPE(object) == changes_type; }
inline Changes* changes_of(PyObject* object) { return reinterpret_cast<Changes*>(object); }

// New, without changes; null: an error is set.
Changes* new_changes();

// Begin the run of a range that has none yet. False: an error is set.
bool begin_run(Changes* changes, uint32_t number);

// Add a change to a run. The key is of two parts; the values are exact `bytes`, or null, and borrowed. False: an error
// is set.
bool add_change(Changes* changes, uint32_t run, Piece prefix, Piece tail, PyObject* old, PyObject* value,
                bool is_expired = false);

// The same for what Python gives: a change, or the arguments of `tell`, a key and two values.
bool add_python_change(Changes* changes, uint32_t run, PyObject* change);
bool add_told(Changes* changes, uint32_t run, PyObject* const* arguments, Py_ssize_t count);

// A change as Python has it; null: an error is set.
PyObject* change_at(const Changes* changes, size_t at);

// Put the items run by run. False: an error is set, and nothing has changed.
bool group(Changes* changes);

// Move all changes to a new one, grouped. False: an error is set, and nothing has moved.
bool move_all(Changes* from, Changes* to);

// Drop the changes of a run, which stays.
//
// Cost: O(all changes).
void take_out(Changes* changes, uint32_t run);

// Drop all.
void clear(Changes* changes);

// The bytes of a WatchRangesReply with these changes behind those of its other fields. Null: an error is set.
//
// REQUIRES: they are grouped.
PyObject* encode_changes(Piece head, const Changes* changes);

int add_changes_type(PyObject* module);

}  // namespace pequod
