// The hot loops of the timeline's kernel.
#pragma once

#include "frames.hpp"
#include "tables.hpp"

namespace pequod {

// Put a value under a tail into every context that waits and covers it; return how many have it as a new row, beside
// those that Python placed, or -1: an error is set. Contexts that have too many rows go stale.
Py_ssize_t write_to_all(const Waiting* waiting, PyObject* tail, PyObject* value, double now_s);

int add_timeline_functions(PyObject* module);

}  // namespace pequod
