// A kernel: how a plan reads the two sources of a timeline, natively.
#pragma once

#include "frames.hpp"
#include "tables.hpp"

namespace pequod {

// How a plan's kernel reads its two sources; see `Timeline` in pequod/engine/joins/timeline.py.
struct Kernel {
    PyObject_HEAD
    // Tables, of the check's keys and of the copied rows; where contexts wait for changes of them.
    PyObject* selecting;
    PyObject* copied;
    PyObject* checks;
    PyObject* copies;
    // A selected prefix is `before`, what a key of the check binds, and `after`.
    PyObject* before;
    PyObject* after;
    // A tail is some bytes of a copied key, and the ending: bytes, and None where the bound stands.
    PyObject* ending;
    // Of what is bound; -1: it goes up to a delimiter.
    Py_ssize_t bound_width;
    Py_ssize_t tail_width;
    // The copied table's cut by which selected prefixes are those of groups.
    long long copied_cut;
    // Whether no join computes rows of the tables, and neither watches nor joins follow the timeline's rows.
    char is_quiet;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&selecting, &copied, &checks, &copies, &before, &after, &ending}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

extern PyTypeObject* kernel_type;

inline Kernel* kernel_of(PyObject* object) { return reinterpret_cast<Kernel*>(object); }
inline bool is_kernel(PyObject* object) { return object && Py_TYPE(object) == kernel_type; }

int add_kernel_type(PyObject* module);

}  // namespace pequod
