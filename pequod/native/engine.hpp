// What commands look at in an engine, and change in it: `HotEngine`, the base of `Engine`.
//
// Its Python type, in engine_type.cpp, has the verbs of verbs.cpp as methods. The twin in
// pequod/engine/calls/composed.py has none of them: there Python does all.
#pragma once

#include "deadlines.hpp"
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
    // A list, empty where no backfill records what keys were.
    PyObject* backfills;
    // What base rows have become since Python looked last, a dictionary of values and None; None: nobody asks.
    PyObject* effects;
    // Why Python refuses writes; None: it takes them.
    PyObject* closed;
    // Of base keys; see deadlines.hpp.
    PyObject* deadlines;
    // By which contexts that become stale are dated.
    double now_s;
    // A log of this length is Python's to write on.
    long long log_max;

    // Call a function with each Python reference, until it returns something else than 0; return that.
    template <typename Function>
    int each(Function function) {
        for (PyObject** member :
             {&ends, &reads, &ledger, &relations, &writer, &backfills, &effects, &closed, &deadlines}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }

    // Whether a key may be due: then Python removes what is, before it reads or removes.
    bool may_be_due() const { return deadlines_of(deadlines)->is_due; }

    // Its attributes are what they should be.
    bool is_sound() const;
};

extern PyTypeObject* engine_type;

inline HotEngine* engine_of(PyObject* object) { return reinterpret_cast<HotEngine*>(object); }

int add_engine_type(PyObject* module);

}  // namespace pequod
