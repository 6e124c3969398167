// Changes of keys that watches are told, in their order: the twin of `Changes` in pequod/engine/joins/told.py.
//
//     key  old  value        references, so that a value which many watches are told is there once
#pragma once

#include "rows.hpp"

namespace pequod {

// The references are owned; old and value are null where the key was or is absent.
struct ToldChange {
    PyObject* key;
    PyObject* old;
    PyObject* value;
    // Whether it is gone since its deadline has come.
    bool is_expired;
};

// All that it holds is `bytes`, so it can be in no reference cycle and is not tracked by the garbage collector.
struct Changes {
    PyObject_HEAD
    ToldChange* items;
    size_t count;
    size_t room;
};

extern PyTypeObject* changes_type;

inline bool is_changes(PyObject* object) { return object && Py_TYPE(object) == changes_type; }
inline Changes* changes_of(PyObject* object) { return reinterpret_cast<Changes*>(object); }

// New, without changes; null: an error is set.
Changes* new_changes();

// Make room for more; false: an error is set.
bool reserve(Changes* changes, size_t more);

// Add a change of exact `bytes`, or null; the references are borrowed. False: an error is set.
bool add_change(Changes* changes, PyObject* key, PyObject* old, PyObject* value, bool is_expired = false);

// Move all changes behind those of others, which have room for them.
void move_all(Changes* from, Changes* to);

// The bytes of a WatchRangesReply with these changes behind those of its other fields. Null: an error is set.
//
// `numbers`, `counts`: lists of integers; the ranges, and how many of the changes each has, one range after the other.
PyObject* encode_changes(Piece head, const Changes* changes, PyObject* numbers, PyObject* counts);

int add_changes_type(PyObject* module);

}  // namespace pequod
