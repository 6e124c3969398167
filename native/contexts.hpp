// The hot part of a context, and contexts by end: the twins of the classes in pequod/engine/base/hot.py.
#pragma once

#include "rows.hpp"

namespace pequod {

// What happened to a join: `Counters`.
struct Counters {
    PyObject_HEAD
    long long hits, computed_ranges, rows_computed, log_applied, invalidations;
};

// How many rows clients have written into a table: `Counts`, the base of `Table`.
struct Counts {
    PyObject_HEAD
    long long entry_count;
};

// The number of the latest read: `Numbers`, the base of `Reads`.
struct Numbers {
    PyObject_HEAD
    long long number;
};

// What a read of a context, or a write into it, looks at: `Hot`, the base of `Context`.
//
// Python code sets the attributes, and may set anything: what is used here as rows or as bytes is looked at first,
// which costs nothing beside fetching it.
struct Hot {
    PyObject_HEAD
    PyObject* rows;
    PyObject* prefix;
    // As tails; an upper of None is the end of the prefix's range.
    PyObject* lower;
    PyObject* upper;
    // The rows may be given out up to then.
    double ready_until_s;
    long long last_used;
    PyObject* counters;
    PyObject* table;
    PyObject* end;
    PyObject* first;
    PyObject* last;
    char is_whole;

    // Its attributes are what they should be.
    bool is_sound() const;
    // One range that goes to the end of the prefix's range.
    bool is_open() const { return is_whole && upper == Py_None; }
};

extern PyTypeObject* counters_type;
extern PyTypeObject* counts_type;
extern PyTypeObject* numbers_type;
extern PyTypeObject* hot_type;

inline bool is_hot(PyObject* object) { return PyObject_TypeCheck(object, hot_type); }
inline Hot* hot_of(PyObject* object) { return reinterpret_cast<Hot*>(object); }
inline SortedRows* rows_of(Hot* hot) { return reinterpret_cast<SortedRows*>(hot->rows); }

inline bool Hot::is_sound() const {
    return is_rows(rows) && prefix && PyBytes_CheckExact(prefix) && lower && PyBytes_CheckExact(lower) && upper &&
           (upper == Py_None || PyBytes_CheckExact(upper)) && counters && Py_TYPE(counters) == counters_type && table &&
           PyObject_TypeCheck(table, counts_type);
}

// 1 if the key of a tail lies in a status range, 0 if not; -1: an error is set.
int covers(Hot* hot, PyObject* tail);

struct End {
    size_t hash;
    PyObject* key;
    PyObject* context;
};

// Contexts by the ends of reads that they answered: open addressing, the keys compared in full.
struct Ends {
    PyObject_HEAD
    // A power of two; where there is no context, the place is free.
    End* places;
    size_t place_count;
    size_t size;

    Hot* find(Piece key) const;
};

extern PyTypeObject* ends_type;

int add_context_types(PyObject* module);

}  // namespace pequod
