// The changes of the state of contexts and of the ledger. Each is written here, and nowhere else in a build with the
// core: Python's methods of the same names are these (`Hot`, `HotLedger`). Their twins in pequod/engine, of a build
// without the core, say what each means.
#pragma once

#include "contexts.hpp"

namespace pequod {

// What the ledger counts: for an entry of rows, for a tail of its own beside its bytes, for an entry of a log beside
// its key, and for a table, a group and a row of an index. Python sets them once (`use_sizes`).
struct Sizes {
    long long entry, tail, log_entry, table, group, row;
};
extern Sizes sizes;

void change_rows(HotLedger* ledger, long long count, long long own_bytes);
void change_logs(HotLedger* ledger, long long grown_bytes);
void change_updaters(HotLedger* ledger, long long grown_bytes);
// Indexes over records came or went, grew or shrank.
void change_indexes(HotLedger* ledger, long long count, long long grown_bytes);
// A write has made or removed rows, which share their tail with those who wait.
void fan_out(HotLedger* ledger, long long count, long long tail_bytes);
// A log has made what is not entries grow, without a put that would weigh: the next weighing comes sooner.
void weigh_sooner(HotLedger* ledger, long long grown_bytes);

// That of a context, null with an error set if there is none.
HotLedger* ledger_of(const Hot* hot);

// REQUIRES of all: the context has a ledger.
void gain_rows(Hot* hot, long long count, long long own_bytes);
// A row has gone; it is unknown whether its tail was its own, so the mean counts.
void lose_row(Hot* hot);

// Log that a source key was `old` (or None) before it changed, unless it is in the log. The length of the log; -1: an
// error is set.
Py_ssize_t note(Hot* hot, int depth, PyObject* key, PyObject* old, long long grown_bytes);

// Fresh to stale; a stale one stays as it is.
void go_stale(Hot* hot, double now_s);

// Stale to fresh: the log has been applied.
void settle(Hot* hot);

}  // namespace pequod
