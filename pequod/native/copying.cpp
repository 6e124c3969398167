#include "copying.hpp"

#include "arguments.hpp"
#include "fetch.hpp"
#include "state.hpp"
#include "watches.hpp"

namespace pequod {

namespace {

PyObject* or_none(PyObject* value) { return value ? value : Py_None; }

// The watches are many, or have lost rows: `WatchIndex` knows them.
bool tell_by_python(PyObject* site, const Hot* hot, PyObject* tail, PyObject* old, PyObject* value) {
    static PyObject* name = PyUnicode_InternFromString("tell_computed");
    PyObject* join = name ? PyObject_GetAttrString(site, "join") : nullptr;
    PyObject* watches = join ? PyObject_GetAttrString(join, "watches") : nullptr;
    PyObject* key = watches ? concatenated(piece_of(hot->prefix), piece_of(tail), Piece{"", 0}) : nullptr;
    PyObject* answer =
        key ? PyObject_CallMethodObjArgs(watches, name, key, or_none(old), or_none(value), nullptr) : nullptr;
    const bool is_told = answer;
    Py_XDECREF(answer);
    Py_XDECREF(key);
    Py_XDECREF(watches);
    Py_XDECREF(join);
    return is_told;
}

// Add a row that has changed to a list; false: an error is set.
bool list_change(const Followers& followers, const Hot* hot, PyObject* tail, PyObject* old, PyObject* value) {
    static PyObject* name = PyUnicode_InternFromString("join");
    PyObject* join = name ? PyObject_GetAttr(followers.site, name) : nullptr;
    PyObject* context = reinterpret_cast<PyObject*>(const_cast<Hot*>(hot));
    PyObject* row = join ? PyTuple_Pack(5, join, context, tail, or_none(old), or_none(value)) : nullptr;
    Py_XDECREF(join);
    return append(followers.changed, row);
}

// Copy a value into one context; return whether it is a new row, -1: an error is set.
int copy_and_tell(const Followers& followers, Hot* hot, PyObject* tail, PyObject* value) {
    // Behind the latest row, as in `write_into`: nothing else of the context is looked at then.
    SortedRows* latest = is_rows(hot->rows) && hot->is_open() ? rows_of(hot) : nullptr;
    if (latest && latest->last.size && compare(latest->last.key(latest->last.size - 1), piece_of(tail)) < 0 &&
        hot->prefix && PyBytes_CheckExact(hot->prefix)) {
        if (!latest->last.insert(latest->last.size, tail, value)) return -1;
        return tell_change(followers, hot, tail, nullptr, value) ? 1 : -1;
    }
    if (!check_all(hot->is_sound(), "contexts have native rows")) return -1;
    const int is_covered = covers(hot, tail);
    if (is_covered <= 0) return is_covered;
    PyObject* old = nullptr;
    const Put done = put(rows_of(hot), tail, value, &old);
    if (done == Put::FAILED) return -1;
    const bool is_same = old && is_equal(piece_of(old), piece_of(value));
    const bool is_told = is_same || tell_change(followers, hot, tail, old, value);
    Py_XDECREF(old);
    return is_told ? done == Put::NEW : -1;
}

}  // namespace

bool tell_change(const Followers& followers, const Hot* hot, PyObject* tail, PyObject* old, PyObject* value) {
    if (followers.changed) return list_change(followers, hot, tail, old, value);
    PyObject* site = followers.site;
    const int is_told = tell(site_of(site)->told, piece_of(hot->prefix), piece_of(tail), old, value);
    return is_told ? is_told > 0 : tell_by_python(site, hot, tail, old, value);
}

void look_ahead(PyObject* site, const Waiting* waiting, unsigned step) {
    if (!waiting->count) return;
    const Hot* hot = waiting->context(0);
    PyObject* watches = site_of(site)->told;
    if (step == 0) {
        fetch(hot);
        fetch(watches);
        return;
    }
    look_ahead(watches, step - 1);
    if (step == 1) fetch_to_write(hot->rows);
    if (step < 2 || !is_rows(hot->rows)) return;
    const Leaf& last = reinterpret_cast<const SortedRows*>(hot->rows)->last;
    if (step == 2) fetch_to_write(last.entries + last.size);
    if (step == 3 && last.size) fetch(last.entries[last.size - 1].key);
}

Py_ssize_t copy_to_followed(const Followers& followers, const Waiting* waiting, PyObject* tail, PyObject* value) {
    Py_ssize_t gained = 0;
    for (uint32_t at = 0; gained >= 0 && at < waiting->count; ++at) {
        const int is_new = copy_and_tell(followers, waiting->context(at), tail, value);
        gained = is_new < 0 ? -1 : gained + is_new;
    }
    return gained;
}

bool take_row_out(const Followers* followers, Hot* hot, PyObject* tail) {
    if (!check_all(hot->is_sound() && ledger_of(hot), "contexts have native rows")) return false;
    const int is_covered = covers(hot, tail);
    PyObject* gone = is_covered > 0 ? remove(rows_of(hot), piece_of(tail)) : nullptr;
    if (!gone) return is_covered >= 0;
    lose_row(hot);
    const bool is_told = !followers || tell_change(*followers, hot, tail, gone, nullptr);
    Py_DECREF(gone);
    return is_told;
}

bool tell_counts(PyObject* site, PyObject* rows) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(rows); ++at) {
        PyObject* row = PyList_GET_ITEM(rows, at);
        if (!tell_change({site, nullptr}, hot_of(PyTuple_GET_ITEM(row, 1)), PyTuple_GET_ITEM(row, 2),
                         PyTuple_GET_ITEM(row, 3), PyTuple_GET_ITEM(row, 4))) {
            return false;
        }
    }
    return true;
}

}  // namespace pequod
