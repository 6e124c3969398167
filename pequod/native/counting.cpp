#include "counting.hpp"

#include "integers.hpp"
#include "state.hpp"

namespace pequod {

namespace {

// The greatest count that the core changes: one more has no digit more than it writes.
constexpr long long COUNT_MAX = 999'999'999'999'999'999;

// The count of a group, 0 if Python has to look. An error may be set.
long long count_of(Hot* hot, PyObject* tail) {
    if (!hot->aggregate_states || !PyDict_CheckExact(hot->aggregate_states)) return 0;
    PyObject* state = PyDict_GetItemWithError(hot->aggregate_states, tail);
    if (!state || !PyLong_CheckExact(state)) return 0;
    int is_long = 0;
    const long long count = PyLong_AsLongLongAndOverflow(state, &is_long);
    return is_long || count >= COUNT_MAX ? 0 : count;
}

PyObject* written(long long count) {
    Integer number;
    number.write(count);
    return PyBytes_FromStringAndSize(number.text, Py_ssize_t(number.size));
}

// Give the group of a tail another count; false: an error is set.
bool set_count(Hot* hot, PyObject* tail, long long count, PyObject* join, PyObject* changed) {
    PyObject* state = PyLong_FromLongLong(count);
    PyObject* value = state ? written(count) : nullptr;
    PyObject* old = nullptr;
    bool is_done = value && PyDict_SetItem(hot->aggregate_states, tail, state) == 0 &&
                   put(rows_of(hot), tail, value, &old) != Put::FAILED;
    if (is_done && changed) {
        PyObject* row = PyTuple_Pack(5, join, reinterpret_cast<PyObject*>(hot), tail, old ? old : Py_None, value);
        is_done = row && PyList_Append(changed, row) == 0;
        Py_XDECREF(row);
    }
    Py_XDECREF(old);
    Py_XDECREF(value);
    Py_XDECREF(state);
    return is_done;
}

}  // namespace

int can_count(const Waiting* waiting, PyObject* tail, int more) {
    for (uint32_t at = 0; at < waiting->count; ++at) {
        Hot* hot = waiting->context(at);
        if (!hot->is_sound() || hot->is_capped) return 0;
        const int is_covered = covers(hot, tail);
        if (is_covered < 0) return -1;
        if (!is_covered) continue;
        const long long count = count_of(hot, tail);
        if (PyErr_Occurred()) return -1;
        if (!count || count + more < 1 || !get(rows_of(hot), piece_of(tail))) return 0;
    }
    return 1;
}

bool count_in_all(const Waiting* waiting, PyObject* tail, int more, PyObject* join, PyObject* changed) {
    for (uint32_t at = 0; at < waiting->count; ++at) {
        Hot* hot = waiting->context(at);
        const int is_covered = covers(hot, tail);
        if (is_covered < 0) return false;
        if (is_covered && !set_count(hot, tail, count_of(hot, tail) + more, join, changed)) return false;
    }
    return true;
}

}  // namespace pequod
