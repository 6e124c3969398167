// The hot loops of the timeline's kernel.
#pragma once

#include "frames.hpp"

namespace pequod {

int add_timeline_functions(PyObject* module);

}  // namespace pequod
