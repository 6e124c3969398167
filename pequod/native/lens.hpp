// The quick half of a lens (`Lens` in pequod/language/records.py): the plain key of a record whose fields are as usual.
#pragma once

#include "parts.hpp"

namespace pequod {

int add_lens_type(PyObject* module);

}  // namespace pequod
