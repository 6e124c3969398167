// The hot part of a context, the twin of `Hot` in pequod/engine/joins/materialised.py, and the records that it counts
// in.
#pragma once

#include "numbers.hpp"

namespace pequod {

// What happened to a join: `Counters`.
struct Counters {
    PyObject_HEAD
    long long hits, computed_ranges, rows_computed, log_applied, invalidations;
};

// What writes look at and change in the ledger: `HotLedger`, the base of `Ledger`.
struct HotLedger {
    PyObject_HEAD
    long long entry_count, entry_count_max, row_bytes, updater_bytes, log_bytes, weigh_at, index_bytes, index_count;
};

// What a read of a context, or a write into it, looks at: `Hot`, the base of `Materialised`. What writes look at
// comes first, in one cache line.
//
// Python code sets the attributes, and may set anything: what is used here as rows or as bytes is looked at first,
// which costs nothing beside fetching it.
struct Hot {
    PyObject_HEAD
    PyObject* rows;
    // As tails; an upper of None is the end of the prefix's range.
    PyObject* lower;
    PyObject* upper;
    char is_whole;
    // Whether it keeps some rows of each group alone: then fan-outs append what comes behind all rows, and Python
    // places the rest.
    char is_capped;
    // How many more rows may be appended before Python drops some; with fewer than `room_over`, there are more rows
    // than reads may see.
    uint32_t room;
    uint32_t room_over;
    PyObject* prefix;
    // The rows may be given out up to then.
    double ready_until_s;
    long long last_used;
    // Reads that found everything there and fresh.
    long long hits;
    PyObject* counters;
    PyObject* end;
    PyObject* first;
    PyObject* last;
    // Changes that are not applied yet, the contexts that were computed from this one, and those from which this one
    // was computed; states of aggregates: dictionaries, null as long as they are empty and Python has not asked for
    // them.
    PyObject* log;
    PyObject* dependants;
    PyObject* upstreams;
    PyObject* aggregate_states;
    // Where it waits as Python has it: a list, null as above.
    PyObject* updaters;
    // In which it is counted: a `HotLedger`.
    PyObject* ledger;
    // How its log is applied natively; null or None: it is not.
    PyObject* kernel;
    double expires_s;
    long long row_bytes;
    long long log_bytes;
    double stale_since_s;
    char is_fresh;
    // Where it waits, by numbers, in any order; each stands for a reference that is owned, while those who wait are
    // borrowed: they let go before they end.
    uint32_t* held;
    uint32_t held_count;
    uint32_t held_room;
    // Its own number while it waits anywhere; 0: it has none.
    uint32_t number;

    // Call a function with each Python reference, until it returns something else than 0; return that.
    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&rows, &prefix, &lower, &upper, &counters, &end, &first, &last, &log, &dependants,
                                  &upstreams, &aggregate_states, &updaters, &ledger, &kernel}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }

    // Its attributes are what they should be.
    bool is_sound() const;
    // One range that goes to the end of the prefix's range.
    bool is_open() const { return is_whole && upper == Py_None; }
};

extern PyTypeObject* counters_type;
extern PyTypeObject* ledger_type;
extern PyTypeObject* hot_type;

inline bool is_hot(PyObject* object) { return PyObject_TypeCheck(object, hot_type); }
inline Hot* hot_of(PyObject* object) { return reinterpret_cast<Hot*>(object); }
inline SortedRows* rows_of(Hot* hot) { return reinterpret_cast<SortedRows*>(hot->rows); }

inline bool Hot::is_sound() const {
    return is_rows(rows) && prefix && PyBytes_CheckExact(prefix) && lower && PyBytes_CheckExact(lower) && upper &&
           (upper == Py_None || PyBytes_CheckExact(upper)) && counters && Py_TYPE(counters) == counters_type;
}

// 1 if the key of a tail lies in a status range, 0 if not; -1: an error is set.
int covers(Hot* hot, PyObject* tail);

int add_context_types(PyObject* module);

}  // namespace pequod
