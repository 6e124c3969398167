// A batch of commands from the bytes of its message to those of its reply.
#pragma once

#include "contexts.hpp"

namespace pequod {

int add_batch_type(PyObject* module);

}  // namespace pequod
