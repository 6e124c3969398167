// Copies of one value in contexts whose rows watches follow, and rows that go there: what
// pequod/engine/writes/copying.py does, and `Writer._set`.
#pragma once

#include "routes.hpp"

namespace pequod {

// Tell those who watch the rows of a site's join of a change of one; values are null where there is no row. False: an
// error is set.
bool tell_change(PyObject* site, const Hot* hot, PyObject* tail, PyObject* old, PyObject* value);

// Fetch what `copy_to_watched` will look at first: one thing of each of many sites, then the next thing of each.
constexpr unsigned STEPS_AHEAD = 4;
void look_ahead(PyObject* site, const Waiting* waiting, unsigned step);

// Copy a value into every context that waits and covers the tail, and tell watches; return how many have a new row, -1:
// an error is set.
Py_ssize_t copy_to_watched(PyObject* site, const Waiting* waiting, PyObject* tail, PyObject* value);

// Take a row out of a context, if it covers the tail; `site`: null, or that of the join whose rows are watched. False:
// an error is set.
bool take_row_out(PyObject* site, Hot* hot, PyObject* tail);

// Tell those who watch the counts of a site's join of rows that `count_in_all` has listed. False: an error is set.
bool tell_counts(PyObject* site, PyObject* rows);

}  // namespace pequod
