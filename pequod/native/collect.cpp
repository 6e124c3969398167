// The rows of those whom a timeline selects, in one call: all of them (a first check), or those that a log brings. Both
// find the group of each selected prefix, cut its rows into tails, and let the context wait at the prefix.
//
// They do the plain cases, and change nothing where a case is not: then Python's loops do all of it.
#include "collect.hpp"

#include "arguments.hpp"
#include "cutting.hpp"
#include "state.hpp"

#include <algorithm>
#include <utility>

namespace pequod {

namespace {

// How many groups are looked up ahead, so that what they lie in is fetched meanwhile.
constexpr size_t AHEAD = 32;

// Add the rows of a group that are within bounds, cut into tails.
bool add_rows(const Cutting& cutting, const Bounds& bounds, SortedRows* rows, Piece prefix, Piece bound, Made* made) {
    const size_t known = prefix.size;
    Place place = {0, 0};
    if (bounds.first.size) {
        PyObject* begin = concatenated(prefix, bounds.first, {"", 0});
        if (!begin) return false;
        // Most posters have nothing new, which the last key tells.
        const bool is_below = rows->last.size && compare(rows->last.key(rows->last.size - 1), piece_of(begin)) < 0;
        if (!is_below) place = lower_bound(rows, piece_of(begin));
        Py_DECREF(begin);
        if (is_below) return true;
    }
    for (; place.leaf < rows->leaf_count(); place = {place.leaf + 1, 0}) {
        const Leaf& leaf = rows->leaf(place.leaf);
        for (; place.at < leaf.size; ++place.at) {
            const Piece key = leaf.key(place.at);
            const Piece rest = {key.start + known, key.size - known};
            if (bounds.last != Py_None && compare(rest, piece_of(bounds.last)) >= 0) return true;
            if (rest.size != cutting.copied) continue;
            PyObject* tail = cutting.make_tail(key, known, bound);
            if (!tail) return false;
            if (compare(piece_of(tail), bounds.lower) < 0 ||
                (bounds.upper != Py_None && compare(piece_of(tail), piece_of(bounds.upper)) >= 0)) {
                Py_DECREF(tail);
            } else if (!made->add(tail, leaf.entries[place.at].value)) {
                return false;
            }
        }
    }
    return true;
}

// The prefixes that the keys of rows in [begin, end) select.
bool select_prefixes(const Cutting& cutting, SortedRows* rows, Place start, Place stop, size_t known,
                     Selected* selected) {
    const size_t most = count_between(rows, start, stop);
    size_t block_size = 0;
    for (const bool is_counting : {true, false}) {
        char* to = nullptr;
        if (!is_counting) {
            if (!selected->reserve(block_size, most)) return false;
            to = selected->block;
        }
        for (Place place = start; place.leaf <= stop.leaf; place = {place.leaf + 1, 0}) {
            const Leaf& leaf = rows->leaf(place.leaf);
            const size_t end = place.leaf == stop.leaf ? stop.at : leaf.size;
            for (; place.at < end; ++place.at) {
                if (is_counting && place.at + 8 < end) __builtin_prefetch(leaf.entries[place.at + 8].key);
                Piece bound;
                if (!cutting.bind(leaf.key(place.at), known, &bound)) continue;
                const size_t size = cutting.prefix_size(bound);
                if (is_counting) {
                    block_size += size;
                    continue;
                }
                cutting.write_prefix(to, bound);
                selected->add({to, size}, false);
                to += size;
            }
        }
    }
    return true;
}

// Whether selected prefixes are those of groups, and the tables are what they should be.
bool is_sound(const Kernel* kernel) {
    const HotTable* copied = table_of(kernel->copied);
    return is_groups(copied->groups) && copied->cut_width == kernel->copied_cut;
}

// Find the rows of each selected prefix, and cut them into tails. 1: done; 0: there are more than `room`; -1: an error.
int make_rows_of(const Kernel* kernel, const Cutting& cutting, const Bounds& bounds, const FrameKey* keys, size_t count,
                 size_t room, Made* made) {
    const HotGroups* groups = groups_of(table_of(kernel->copied)->groups);
    for (size_t at = 0; at < count; ++at) {
        if (at % AHEAD == 0) look_ahead_groups(groups, keys + at, std::min(AHEAD, count - at));
        const Piece prefix = keys[at].bytes;
        SortedRows* group = find_group(groups, keys[at].hash, prefix);
        if (!group) continue;
        const Piece bound = {prefix.start + cutting.before.size,
                             prefix.size - cutting.before.size - cutting.after.size};
        if (!add_rows(cutting, bounds, group, prefix, bound, made)) return -1;
        if (made->size > room) return 0;
    }
    return 1;
}

// Let a new context wait at the check's prefix and at those that it selects. The check's is the first of its places,
// where logs look for it.
bool wait_everywhere(Kernel* kernel, Hot* hot, Piece check, const Selected& selected, long long* grown_bytes) {
    const FrameKey key = {check, hash_of(check)};
    return reserve_held(hot, selected.count + 1) &&
           wait_at_all(reinterpret_cast<Frames*>(kernel->checks), &key, 1, hot, grown_bytes) &&
           wait_at_all(reinterpret_cast<Frames*>(kernel->copies), selected.keys, selected.count, hot, grown_bytes);
}

// Give rows to a context that has none, and enter them into the ledger: the mean of two tails stands for all, as in
// `Materialised.take_rows`. There is room for them.
void take_rows(Hot* hot, Made* made) {
    long long own_bytes = 0;
    const size_t count = std::exchange(made->size, 0);
    if (count) {
        const size_t ends_bytes = piece_of(made->entries[0].key).size + piece_of(made->entries[count - 1].key).size;
        own_bytes = (sizes.tail + static_cast<long long>(ends_bytes / 2)) * static_cast<long long>(count);
        Leaf& leaf = rows_of(hot)->last;
        std::memcpy(leaf.entries, made->entries, count * sizeof(Entry));
        leaf.size = uint32_t(count);
    }
    gain_rows(hot, static_cast<long long>(count), own_bytes);
}

// collect(context, selected, prefix, begin, end, lower, upper, first, last, room): see the Python function of this
// name.
PyObject* collect(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("collect", count, 10)) return nullptr;
    PyObject *context = arguments[0], *selecting = arguments[1], *prefix = arguments[2], *begin = arguments[3],
             *end = arguments[4];
    const Py_ssize_t room = PyLong_AsSsize_t(arguments[9]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(is_hot(context) && hot_of(context)->is_sound() && is_kernel(hot_of(context)->kernel) &&
                       is_rows(selecting) && PyBytes_CheckExact(prefix) && room >= 0 && PyBytes_CheckExact(begin) &&
                       is_bound(end) && PyBytes_CheckExact(arguments[5]) && is_bound(arguments[6]) &&
                       PyBytes_CheckExact(arguments[7]) && is_bound(arguments[8]),
                   "collect takes a context with a kernel, rows and bounds")) {
        return nullptr;
    }
    Hot* hot = hot_of(context);
    Kernel* kernel = kernel_of(hot->kernel);
    const Cutting cutting(kernel);
    const Bounds bounds = {piece_of(arguments[5]), arguments[6], piece_of(arguments[7]), arguments[8]};
    if (rows_of(hot)->last.size || !is_sound(kernel)) Py_RETURN_NONE;
    HotLedger* ledger = ledger_of(hot);
    if (!ledger) return nullptr;
    SortedRows* keys = reinterpret_cast<SortedRows*>(selecting);
    const Place stop = end == Py_None ? Place{keys->older_size, keys->last.size} : lower_bound(keys, piece_of(end));
    Selected selected;
    Made made;
    if (!select_prefixes(cutting, keys, lower_bound(keys, piece_of(begin)), stop, piece_of(prefix).size, &selected)) {
        return nullptr;
    }
    const int is_made = make_rows_of(kernel, cutting, bounds, selected.keys, selected.count, size_t(room), &made);
    if (is_made < 0) return nullptr;
    if (!is_made) Py_RETURN_NONE;
    made.sort();
    long long grown_bytes = 0;
    if (made.size && !rows_of(hot)->last.make_room(made.size)) return nullptr;
    if (!wait_everywhere(kernel, hot, piece_of(prefix), selected, &grown_bytes)) return nullptr;
    const size_t row_count = made.size;
    take_rows(hot, &made);
    change_updaters(ledger, grown_bytes);
    return PyLong_FromSize_t(row_count);
}

// How many bytes of the check's keys a context knows: its frame among the checks says it. False: it has none.
bool find_known(const Kernel* kernel, const Hot* hot, size_t* known) {
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        const Waiting* waiting = waiting_places.at(hot->held[at]);
        if (reinterpret_cast<PyObject*>(waiting->frames) != kernel->checks) continue;
        *known = waiting->key().size;
        return true;
    }
    return false;
}

// Whether a database owns the keys of a table.
bool is_backed(PyObject* table) { return table_of(table)->loaded != Py_None; }

// Whether all rows from `first` on that a prefix selects are loaded. 1: they are; 0: not all are; -1: an error is set.
int are_loaded(const Kernel* kernel, Piece prefix, Piece first) {
    if (!is_backed(kernel->copied)) return 1;
    PyObject* begin = concatenated(prefix, first, {"", 0});
    if (!begin) return -1;
    const bool found = is_loaded_from(table_of(kernel->copied), piece_of(begin), prefix);
    Py_DECREF(begin);
    return found;
}

// The prefixes that a log brings or takes away, of which rows from `first` on are copied. 1: found; 0: a key is
// unusual, or something is not loaded, which is Python's; -1: an error is set.
int select_logged(const Kernel* kernel, const Cutting& cutting, const Hot* hot, Piece first, Selected* selected) {
    PyObject* log = hot->log;
    size_t known, block_size = 0;
    if (!find_known(kernel, hot, &known)) return 0;
    Py_ssize_t place = 0;
    PyObject *key, *was;
    while (PyDict_Next(log, &place, &key, &was)) {
        if (!PyTuple_CheckExact(key) || PyTuple_GET_SIZE(key) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(key, 1)))
            return 0;
        block_size += cutting.prefix_size(piece_of(PyTuple_GET_ITEM(key, 1)));
    }
    if (!selected->reserve(block_size, size_t(PyDict_GET_SIZE(log)))) return -1;
    char* to = selected->block;
    place = 0;
    while (PyDict_Next(log, &place, &key, &was)) {
        const Piece changed = piece_of(PyTuple_GET_ITEM(key, 1));
        const bool is_there = get(table_of(kernel->selecting), changed);
        if (!is_loaded(table_of(kernel->selecting), changed)) return 0;
        if (is_there == (was != Py_None)) continue;
        Piece bound;
        if (!cutting.bind(changed, known, &bound)) return 0;
        const size_t size = cutting.prefix_size(bound);
        cutting.write_prefix(to, bound);
        const int is_complete = are_loaded(kernel, {to, size}, first);
        if (is_complete <= 0) return is_complete;
        selected->add({to, size}, !is_there);
        to += size;
    }
    return 1;
}

// What a log is applied with.
struct Applying {
    Kernel* kernel;
    Hot* hot;
    HotLedger* ledger;
    Cutting cutting;
    Bounds bounds;
};

// Take in the rows of prefixes that came, and wait there. False: an error is set.
bool take_in(const Applying& applying, const FrameKey* keys, size_t count) {
    Hot* hot = applying.hot;
    Made made;
    if (make_rows_of(applying.kernel, applying.cutting, applying.bounds, keys, count, SIZE_MAX, &made) < 0)
        return false;
    long long grown_bytes = 0, gained_bytes = 0, gained = 0;
    bool is_done = wait_at_all(reinterpret_cast<Frames*>(applying.kernel->copies), keys, count, hot, &grown_bytes);
    for (size_t at = 0; is_done && at < made.size; ++at) {
        PyObject* old = nullptr;
        const Put done = put(rows_of(hot), made.entries[at].key, made.entries[at].value, &old);
        Py_XDECREF(old);
        is_done = done != Put::FAILED;
        if (done != Put::NEW) continue;
        ++gained;
        gained_bytes += sizes.tail + static_cast<long long>(piece_of(made.entries[at].key).size);
    }
    gain_rows(hot, gained, gained_bytes);
    change_updaters(applying.ledger, grown_bytes);
    weigh_sooner(applying.ledger, gained_bytes + grown_bytes);
    return is_done;
}

// Take out the rows of a prefix that went, and wait there no more. False: an error is set.
bool take_out(const Applying& applying, const FrameKey& key) {
    Hot* hot = applying.hot;
    Waiting* waiting = find_frame(reinterpret_cast<Frames*>(applying.kernel->copies), key.bytes);
    if (waiting && does_wait(waiting, hot->number)) change_updaters(applying.ledger, leave(waiting, hot));
    Made made;
    if (make_rows_of(applying.kernel, applying.cutting, applying.bounds, &key, 1, SIZE_MAX, &made) < 0) return false;
    for (size_t at = 0; at < made.size; ++at) {
        PyObject* old = remove(rows_of(hot), piece_of(made.entries[at].key));
        if (!old) continue;
        Py_DECREF(old);
        lose_row(hot);
    }
    return true;
}

// Apply the log of a context: its rows, its frames and the ledger. As `refresh`.
int apply_log(Hot* hot) {
    Kernel* kernel = kernel_of(hot->kernel);
    // Several ranges are Python's to look through.
    if (!is_sound(kernel) || !hot->is_sound() || !hot->is_open() || !hot->log) return 0;
    HotLedger* ledger = ledger_of(hot);
    if (!ledger) return -1;
    const Cutting cutting(kernel);
    const Piece lower = piece_of(hot->lower);
    const Piece first = {lower.start, std::min(lower.size, cutting.copied)};
    Selected selected;
    const int is_selected = select_logged(kernel, cutting, hot, first, &selected);
    if (is_selected <= 0) return is_selected;
    const Applying applying = {kernel, hot, ledger, cutting, {lower, Py_None, first, Py_None}};
    // As in Python, first what goes: the mean that a row takes out of the ledger depends on those that are there.
    for (size_t at = 0; at < selected.count; ++at) {
        if (selected.went[at] && !take_out(applying, selected.keys[at])) return -1;
    }
    // What comes one after the other at once.
    for (size_t at = 0, stop; at < selected.count; at = stop) {
        for (stop = at + 1; !selected.went[at] && stop < selected.count && !selected.went[stop];) ++stop;
        if (!selected.went[at] && !take_in(applying, selected.keys + at, stop - at)) return -1;
    }
    return 1;
}

// apply_log(context): bring its rows and frames up to date with its log; False, and nothing has changed: do it in
// Python.
PyObject* apply_log_of(PyObject*, PyObject* context) {
    if (!check_all(is_hot(context) && is_kernel(hot_of(context)->kernel), "apply_log takes a context with a kernel")) {
        return nullptr;
    }
    const int is_applied = apply_log(hot_of(context));
    return is_applied < 0 ? nullptr : PyBool_FromLong(is_applied);
}

}  // namespace

int refresh(Hot* hot, double now) {
    if (!is_kernel(hot->kernel) || !kernel_of(hot->kernel)->is_quiet) return 0;
    if (hot->is_fresh || !(now <= hot->expires_s) || !hot->log || !PyDict_GET_SIZE(hot->log)) {
        return 0;
    }
    // Loaded ranges that the log needs count as used by this read, which Python notes.
    const Kernel* kernel = kernel_of(hot->kernel);
    if (is_backed(kernel->selecting) || is_backed(kernel->copied)) return 0;
    const int is_applied = apply_log(hot);
    if (is_applied <= 0) return is_applied;
    settle(hot);
    return 1;
}

namespace {

PyMethodDef functions[] = {
    {"collect", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(collect)), METH_FASTCALL,
     "See the Python function of this name."},
    {"apply_log", apply_log_of, METH_O,
     "Bring a context up to date with its log; return False if it is Python's to do."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_collect_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
