// Copies of one value in contexts whose rows are followed, and rows that go there: what pequod/engine/writes/copying.py
// does, and `Writer._set`.
#pragma once

#include "routes.hpp"

namespace pequod {

// Those who are told of the rows of a site's join that change.
struct Followers {
    PyObject* site;
    // A list that gets the rows, as that of `count_in_all`; null: watches are told.
    PyObject* changed;
};

// Tell of a change of a row; values are null where there is no row. False: an error is set.
bool tell_change(const Followers& followers, const Hot* hot, PyObject* tail, PyObject* old, PyObject* value);

// Fetch what `copy_to_followed` will look at first: one thing of each of many sites, then the next thing of each.
constexpr unsigned STEPS_AHEAD = 4;
void look_ahead(PyObject* site, const Waiting* waiting, unsigned step);

// Copy a value into every context that waits and covers the tail, and tell of it; return how many have a new row, -1:
// an error is set.
Py_ssize_t copy_to_followed(const Followers& followers, const Waiting* waiting, PyObject* tail, PyObject* value);

// Take a row out of a context, if it covers the tail; `followers`: null if nobody is told. False: an error is
// set.
bool take_row_out(const Followers* followers, Hot* hot, PyObject* tail);

// Tell those who watch the counts of a site's join of rows that `count_in_all` has listed. False: an error is set.
bool tell_counts(PyObject* site, PyObject* rows);

}  // namespace pequod
