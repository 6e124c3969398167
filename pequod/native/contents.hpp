// Hashes of the rows of a lake, column after column: what `pequod_lake/contents.py` does with NumPy.
#pragma once

#include "hash.hpp"

namespace pequod {

int add_content_functions(PyObject* module);

}  // namespace pequod
