// What watches are told natively, and how they ask for their turn: the twins of classes in pequod/engine/joins/told.py.
#pragma once

#include "changes.hpp"

namespace pequod {

// What writes look at in a watch: `HotWatch`, the base of `Watch`. Python sets the attributes, and may set anything.
struct HotWatch {
    PyObject_HEAD
    // The range; a last key of None is the end.
    PyObject* first;
    PyObject* last;
    // What it was told: `Changes`, or a `HotLane`.
    PyObject* changes;
    // Contexts and ranges that are not as a scan would return them: a dictionary and a list.
    PyObject* stale;
    PyObject* lost;
    // Why it has ended, or None.
    PyObject* ended;
    // Called once there is something for its owner: any function.
    PyObject* waker;
    char is_awake;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&first, &last, &changes, &stale, &lost, &ended, &waker}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

// What one of many watches of an owner is told, and how it asks for a turn: `HotLane`, the base of `ToldLane`. It is
// both the `changes` and the `waker` of its watch.
struct HotLane {
    PyObject_HEAD
    // What all of them are told: `Changes`.
    PyObject* changes;
    // The numbers of the watches that have more than that: a list.
    PyObject* woken;
    // Called when there is something, and was nothing before.
    PyObject* begin;
    // The number of its watch among those of its owner.
    unsigned int number;
    // Its run in the changes, while their beat is this one less one.
    unsigned int run;
    unsigned long long beat;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&changes, &woken, &begin}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

extern PyTypeObject* watch_type;
extern PyTypeObject* lane_type;

// Tell those watches of a tuple that hold a key, of two parts, of its change, and wake them. 0: nobody is told, since
// some are not native or have lost rows; -1: an error is set.
int tell(PyObject* watches, Piece prefix, Piece tail, PyObject* old, PyObject* value);

// Fetch what `tell` looks at in the first watch of a tuple, step by step.
void look_ahead(PyObject* watches, unsigned step);

int add_watch_types(PyObject* module);

}  // namespace pequod
