// The quick commands of an engine: `HotEngine`, the base of `Engine`, whose twin is in pequod/engine/calls/composed.py.
//
// Each does what the method of its name does where that takes a look-up and a copy, and leaves the rest to it.
#pragma once

#include "ends.hpp"
#include "tables.hpp"

namespace pequod {

struct HotEngine {
    PyObject_HEAD
    long long revision;
    long long key_bytes_max;
    // Of a larger value Python says whether it is taken, and when the ledger is weighed.
    long long value_bytes_quick;
    PyObject* ends;
    PyObject* reads;
    PyObject* ledger;
    // A dictionary of relations.
    PyObject* relations;
    PyObject* writer;
    // By which contexts that become stale are dated.
    double now_s;
    // A log of this length is Python's to write on.
    long long log_max;

    // Call a function with each Python reference, until it returns something else than 0; return that.
    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&ends, &reads, &ledger, &relations, &writer}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }

    // Its attributes are what they should be.
    bool is_sound() const;
};

extern PyTypeObject* engine_type;

inline HotEngine* engine_of(PyObject* object) { return reinterpret_cast<HotEngine*>(object); }

// How a command went: not quick means that nothing has changed; failed, that an error is set.
enum class Ran { DONE, ABSENT, NOT_QUICK, FAILED };

Ran put(HotEngine* engine, Piece key, Piece value);
Ran remove(HotEngine* engine, Piece key);

// What was seen of a command in advance.
struct Seen {
    // Of the end of a scan.
    size_t hash;
    // Where the key of a GET was, null if it was not looked for. It is a guess: the rows may have changed since.
    const SortedRows* rows;
    size_t leaf;
    size_t at;

    // The value of a key among rows, if it is where it was seen; else null.
    PyObject* value_in(SortedRows* found, Piece key) const {
        if (found != rows || leaf > found->older_size) return nullptr;
        const Leaf& present = found->leaf(leaf);
        return at < present.size && is_equal(present.key(at), key) ? present.entries[at].value : nullptr;
    }
};

// Find the value of a key; the reference is borrowed, until the next change.
Ran get(HotEngine* engine, Piece key, const Seen& seen, PyObject** value);

// Find the rows that have all keys of `[first, last)`, which no join computes; null: there are none.
Ran rows_between(HotEngine* engine, Piece first, Piece last, SortedRows** rows);

int add_engine_type(PyObject* module);

}  // namespace pequod
