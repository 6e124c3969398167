// The kernel of a timeline, natively: it takes the rows of those whom it selects, at a first check and by its log.
#pragma once

#include "kernel.hpp"

namespace pequod {

// Bring a stale context up to date with its log, as `Reader.refresh` does. 1: it is fresh now; 0: that is Python's to
// do, nothing has changed; -1: an error is set.
int refresh(Hot* hot, double now);

int add_collect_functions(PyObject* module);

}  // namespace pequod
