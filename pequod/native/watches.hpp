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
    // What it was told: `Changes`.
    PyObject* changes;
    // Contexts and ranges that are not as a scan would return them: a dictionary and a list.
    PyObject* stale;
    PyObject* lost;
    // Why it has ended, or None.
    PyObject* ended;
    // Called once there is something for its owner: a `HotWaker`, or any function.
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

// Notes which of many watches have something, and calls once for all of them: `HotWaker`, the base of `Waker`.
struct HotWaker {
    PyObject_HEAD
    // The number of its watch among those of its owner.
    PyObject* number;
    // The numbers of all watches that have something: a list.
    PyObject* woken;
    // Called when the first one comes to the list.
    PyObject* begin;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&number, &woken, &begin}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

extern PyTypeObject* watch_type;
extern PyTypeObject* waker_type;

// Tell those watches of a tuple that hold a key, of two parts, of its change, and wake them. 0: nobody is told, since
// some are not native or have lost rows; -1: an error is set.
int tell(PyObject* watches, Piece prefix, Piece tail, PyObject* old, PyObject* value);

int add_watch_types(PyObject* module);

}  // namespace pequod
