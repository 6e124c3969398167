// Batches of clients: requests encoded, and replies taken apart.
#pragma once

#include "messages.hpp"

namespace pequod {

int add_column_functions(PyObject* module);

}  // namespace pequod
