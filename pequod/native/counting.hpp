// Counts: what a row more or a row less changes in the contexts of a join with `count`, where the group has rows before
// and after. A group that begins or ends is Python's.
#pragma once

#include "routes.hpp"

namespace pequod {

// Whether each context that waits has a count of the group of this tail, which stays above nothing; 0: Python counts;
// -1: an error is set.
int can_count(const Waiting* waiting, PyObject* tail, int more);

// Count a row more (1) or less (-1) in each of them.
//
// REQUIRES: `can_count`.
//
// `changed`: null, or a list that gets (join, context, tail, old value, new value) of each row that is another now.
// False: an error is set.
bool count_in_all(const Waiting* waiting, PyObject* tail, int more, PyObject* join, PyObject* changed);

}  // namespace pequod
