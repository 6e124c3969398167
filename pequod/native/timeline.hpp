// The hot loops of the timeline's kernel.
#pragma once

#include "frames.hpp"
#include "tables.hpp"

namespace pequod {

// Put a value under a tail into every context that waits and covers it; return how many have it as a new row, or -1: an
// error is set.
Py_ssize_t write_to_all(const Waiting* waiting, PyObject* tail, PyObject* value);

int add_timeline_functions(PyObject* module);

}  // namespace pequod
