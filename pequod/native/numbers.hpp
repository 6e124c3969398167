// The number of a read: `Numbers`, the base of `Reads`, which has that of the latest one; each part of loaded ranges
// has that of the latest one that has used it.
#pragma once

#include "rows.hpp"

namespace pequod {

struct Numbers {
    PyObject_HEAD
    long long number;
};

extern PyTypeObject* numbers_type;

inline bool is_numbers(PyObject* object) { return object && PyObject_TypeCheck(object, numbers_type); }

}  // namespace pequod
