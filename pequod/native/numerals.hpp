// Whether a JSON text may hold a number of which a double does not keep all (`may_lose` in pequod/language/parsing.py).
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace pequod {

// It may say so of a text that holds none, as in a string, but finds each number of more than 15 digits that is no
// integer up to 2**64, and each exponent of three digits.
bool may_lose(const char* text, size_t size);

int add_numeral_functions(PyObject* module);

}  // namespace pequod
