#include "state.hpp"

#include <limits>
#include <utility>

namespace pequod {

Sizes sizes = {0, 0, 0, 0, 0, 0};

void change_rows(HotLedger* ledger, long long count, long long own_bytes) {
    ledger->entry_count += count;
    ledger->row_bytes += own_bytes;
}

void change_logs(HotLedger* ledger, long long grown_bytes) { ledger->log_bytes += grown_bytes; }

void change_updaters(HotLedger* ledger, long long grown_bytes) { ledger->updater_bytes += grown_bytes; }

void change_indexes(HotLedger* ledger, long long count, long long grown_bytes) {
    ledger->index_count += count;
    ledger->index_bytes += grown_bytes;
}

void fan_out(HotLedger* ledger, long long count, long long tail_bytes) {
    ledger->updater_bytes += tail_bytes;
    ledger->entry_count += count;
    if (ledger->entry_count > ledger->entry_count_max) ledger->weigh_at = 0;
}

void weigh_sooner(HotLedger* ledger, long long grown_bytes) {
    ledger->entry_count_max -= grown_bytes / sizes.entry;
    if (ledger->entry_count > ledger->entry_count_max) ledger->weigh_at = 0;
}

HotLedger* ledger_of(const Hot* hot) {
    if (hot->ledger && PyObject_TypeCheck(hot->ledger, ledger_type)) return reinterpret_cast<HotLedger*>(hot->ledger);
    PyErr_SetString(PyExc_TypeError, "a context has a ledger");
    return nullptr;
}

namespace {

HotLedger* own_ledger(Hot* hot) { return reinterpret_cast<HotLedger*>(hot->ledger); }

}  // namespace

void gain_rows(Hot* hot, long long count, long long own_bytes) {
    change_rows(own_ledger(hot), count, own_bytes);
    hot->row_bytes += own_bytes;
}

void lose_row(Hot* hot) {
    const long long left = static_cast<long long>(row_count(rows_of(hot)));
    gain_rows(hot, -1, -(hot->row_bytes / (left + 1)));
}

Py_ssize_t note(Hot* hot, int depth, PyObject* key, PyObject* old, long long grown_bytes) {
    if (!hot->log) hot->log = PyDict_New();
    PyObject* entry = hot->log ? Py_BuildValue("(iO)", depth, key) : nullptr;
    if (!entry) return -1;
    const Py_ssize_t before = PyDict_GET_SIZE(hot->log);
    const bool is_noted = PyDict_SetDefault(hot->log, entry, old);
    Py_DECREF(entry);
    if (!is_noted) return -1;
    const Py_ssize_t count = PyDict_GET_SIZE(hot->log);
    if (count > before) {
        hot->log_bytes += grown_bytes;
        change_logs(own_ledger(hot), grown_bytes);
    }
    return count;
}

void go_stale(Hot* hot, double now_s) {
    if (!hot->is_fresh) return;
    hot->is_fresh = 0;
    hot->ready_until_s = -std::numeric_limits<double>::infinity();
    hot->stale_since_s = now_s;
}

void settle(Hot* hot) {
    if (hot->log) reinterpret_cast<Counters*>(hot->counters)->log_applied += PyDict_GET_SIZE(hot->log);
    // The next entry makes a new one: most timelines have none for long.
    Py_CLEAR(hot->log);
    change_logs(own_ledger(hot), -std::exchange(hot->log_bytes, 0));
    hot->is_fresh = 1;
    hot->ready_until_s = hot->expires_s;
}

}  // namespace pequod
