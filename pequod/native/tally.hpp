// How many entries the columns of a message have, before anything is made of its bytes.
#pragma once

#include "messages.hpp"

namespace pequod {

int add_tally_function(PyObject* module);

}  // namespace pequod
