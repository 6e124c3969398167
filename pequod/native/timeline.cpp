// The hot loops of the timeline's kernel: the twins of functions in pequod/engine/joins/timeline.py. They take what
// Python keeps, lists and dictionaries of it, and decide nothing.
#include "timeline.hpp"

#include "arguments.hpp"
#include "fetch.hpp"
#include "row_lists.hpp"
#include "state.hpp"

#include <algorithm>

namespace pequod {

namespace {

// select(keys, known, before, width, after): what keys bind behind their known prefix, and the prefixes that it makes.
PyObject* select(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("select", count, 5)) return nullptr;
    PyObject *keys = arguments[0], *before = arguments[2], *after = arguments[4];
    const Py_ssize_t known = PyLong_AsSsize_t(arguments[1]);
    const Py_ssize_t width = arguments[3] == Py_None ? -1 : PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(is_bytes_list(keys) && PyBytes_CheckExact(before) && PyBytes_CheckExact(after) && known >= 0,
                   "select takes a list of keys and bytes around what they bind")) {
        return nullptr;
    }
    PyObject *bounds = PyList_New(0), *prefixes = PyList_New(0);
    bool is_whole = bounds && prefixes;
    for (Py_ssize_t at = 0; is_whole && at < PyList_GET_SIZE(keys); ++at) {
        const Piece key = piece_of(PyList_GET_ITEM(keys, at));
        const size_t passed = size_t(known) < key.size ? size_t(known) : key.size;
        const Piece bound = {key.start + passed, key.size - passed};
        if (width < 0 ? !bound.size || std::memchr(bound.start, '|', bound.size) : bound.size != size_t(width))
            continue;
        is_whole = append(bounds, PyBytes_FromStringAndSize(bound.start, Py_ssize_t(bound.size))) &&
                   append(prefixes, concatenated(piece_of(before), bound, piece_of(after)));
    }
    PyObject* pair = is_whole ? PyTuple_Pack(2, bounds, prefixes) : nullptr;
    Py_XDECREF(bounds);
    Py_XDECREF(prefixes);
    return pair;
}

// fill(start, bounds, prefixes, groups, first, last, head, width, ending, lower, upper, room, tails, values): see
// `Timeline.fill`. Head and ending are templates.
PyObject* fill(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("fill", count, 14)) return nullptr;
    PyObject *bounds = arguments[1], *prefixes = arguments[2], *groups = arguments[3];
    PyObject *first = arguments[4], *last = arguments[5], *head = arguments[6], *ending = arguments[8];
    PyObject *lower = arguments[9], *upper = arguments[10], *tails = arguments[12], *values = arguments[13];
    const Py_ssize_t start = PyLong_AsSsize_t(arguments[0]), width = PyLong_AsSsize_t(arguments[7]);
    const long long room = PyLong_AsLongLong(arguments[11]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(is_bytes_list(bounds) && is_bytes_list(prefixes) &&
                       PyList_GET_SIZE(bounds) == PyList_GET_SIZE(prefixes) && is_groups(groups) &&
                       PyBytes_CheckExact(first) && is_bound(last) && is_template(head) && is_template(ending) &&
                       PyBytes_CheckExact(lower) && is_bound(upper) && PyList_CheckExact(tails) &&
                       PyList_CheckExact(values) && start >= 0 && width >= 0,
                   "fill takes lists of bytes, and groups")) {
        return nullptr;
    }
    for (Py_ssize_t at = start; at < PyList_GET_SIZE(prefixes); ++at) {
        PyObject* prefix = PyList_GET_ITEM(prefixes, at);
        SortedRows* rows = find_group(groups_of(groups), hash_of(piece_of(prefix)), piece_of(prefix));
        if (!rows) continue;
        const size_t known = piece_of(prefix).size;
        Place place = {0, 0};
        if (piece_of(first).size) {
            // Most posters have nothing new, which the last key tells.
            PyObject* low = concatenated(piece_of(prefix), piece_of(first), {"", 0});
            if (!low) return nullptr;
            const bool is_below = rows->last.size && compare(rows->last.key(rows->last.size - 1), piece_of(low)) < 0;
            if (!is_below) place = lower_bound(rows, piece_of(low));
            Py_DECREF(low);
            if (is_below) continue;
        }
        const Piece bound = piece_of(PyList_GET_ITEM(bounds, at));
        const size_t size = spelled_size(head, bound) + size_t(width) + spelled_size(ending, bound);
        for (; place.leaf < rows->leaf_count(); place = {place.leaf + 1, 0}) {
            const Leaf& leaf = rows->leaf(place.leaf);
            for (; place.at < leaf.size; ++place.at) {
                const Piece key = leaf.key(place.at);
                if (last != Py_None) {
                    const Piece rest = {key.start + known, key.size - known};
                    if (compare(rest, piece_of(last)) >= 0) goto done;
                }
                if (key.size != known + size_t(width)) continue;
                PyObject* tail = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
                if (!tail) return nullptr;
                char* to = spell(PyBytes_AS_STRING(tail), head, bound);
                std::memcpy(to, key.start + known, size_t(width));
                spell(to + width, ending, bound);
                if (compare(piece_of(tail), piece_of(lower)) < 0 ||
                    (upper != Py_None && compare(piece_of(tail), piece_of(upper)) >= 0)) {
                    Py_DECREF(tail);
                    continue;
                }
                if (!append(tails, tail) || !append(values, Py_NewRef(leaf.entries[place.at].value))) return nullptr;
            }
        }
    done:
        if (PyList_GET_SIZE(tails) > room) return PyLong_FromSsize_t(at + 1);
    }
    return PyLong_FromSsize_t(PyList_GET_SIZE(prefixes));
}

// A group whose rows are taken from its end.
struct Ending {
    SortedRows* rows;
    // The first row that counts, and the one behind the next.
    Place first;
    Place place;
    size_t known;
    Piece rest;

    // Go to the next row whose key has the right size; false: there is none.
    bool step(size_t width) {
        while (first.leaf < place.leaf || (first.leaf == place.leaf && first.at < place.at)) {
            if (!place.at) {
                --place.leaf;
                place.at = rows->leaf(place.leaf).size;
                continue;
            }
            const Piece key = rows->leaf(place.leaf).key(--place.at);
            rest = {key.start + known, key.size - known};
            if (rest.size == width) return true;
        }
        return false;
    }
};

// newest_from(prefixes, groups, first, width, wanted): see `Timeline.newest_from`.
PyObject* newest_from(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("newest_from", count, 5)) return nullptr;
    PyObject *prefixes = arguments[0], *groups = arguments[1], *first = arguments[2];
    const Py_ssize_t width = PyLong_AsSsize_t(arguments[3]), wanted = PyLong_AsSsize_t(arguments[4]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(
            is_bytes_list(prefixes) && is_groups(groups) && PyBytes_CheckExact(first) && width >= 0 && wanted > 0,
            "newest_from takes a list of bytes, groups and bytes")) {
        return nullptr;
    }
    const size_t most = size_t(PyList_GET_SIZE(prefixes));
    Ending* endings = static_cast<Ending*>(PyMem_Malloc((most ? most : 1) * sizeof(Ending)));
    if (!endings) return PyErr_NoMemory();
    size_t size = 0;
    for (size_t at = 0; at < most; ++at) {
        const Piece prefix = piece_of(PyList_GET_ITEM(prefixes, Py_ssize_t(at)));
        SortedRows* rows = find_group(groups_of(groups), hash_of(prefix), prefix);
        if (!rows) continue;
        Ending& ending = endings[size];
        ending = {rows, {0, 0}, {rows->older_size, rows->last.size}, prefix.size, {}};
        if (piece_of(first).size) {
            PyObject* low = concatenated(prefix, piece_of(first), {"", 0});
            if (!low) {
                PyMem_Free(endings);
                return nullptr;
            }
            ending.first = lower_bound(rows, piece_of(low));
            Py_DECREF(low);
        }
        size += ending.step(size_t(width));
    }
    const auto is_before = [](const Ending& a, const Ending& b) { return compare(a.rest, b.rest) < 0; };
    std::make_heap(endings, endings + size, is_before);
    PyObject* found = nullptr;
    for (Py_ssize_t taken = 1; size; ++taken) {
        std::pop_heap(endings, endings + size, is_before);
        const Piece rest = endings[size - 1].rest;
        if (endings[size - 1].step(size_t(width))) {
            std::push_heap(endings, endings + size, is_before);
        } else {
            --size;
        }
        if (taken < wanted) continue;
        found = PyBytes_FromStringAndSize(rest.start, Py_ssize_t(rest.size));
        break;
    }
    PyMem_Free(endings);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

struct Found {
    Piece tail;
    Py_ssize_t at;
};

// in_order(tails, values): two lists of the rows in the order of their tails; of equal tails the last one stays.
PyObject* in_order(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("in_order", count, 2)) return nullptr;
    PyObject *tails = arguments[0], *values = arguments[1];
    if (!check_all(
            is_bytes_list(tails) && PyList_CheckExact(values) && PyList_GET_SIZE(tails) == PyList_GET_SIZE(values),
            "in_order takes two lists of one length")) {
        return nullptr;
    }
    const Py_ssize_t size = PyList_GET_SIZE(tails);
    Found* found = static_cast<Found*>(PyMem_Malloc(size_t(size ? size : 1) * sizeof(Found)));
    if (!found) return PyErr_NoMemory();
    for (Py_ssize_t at = 0; at < size; ++at) found[at] = {piece_of(PyList_GET_ITEM(tails, at)), at};
    std::sort(found, found + size, [](const Found& a, const Found& b) {
        const int order = compare(a.tail, b.tail);
        return order ? order < 0 : a.at < b.at;
    });
    Py_ssize_t kept = 0;
    for (Py_ssize_t at = 0; at < size; ++at) {
        if (at + 1 == size || !is_equal(found[at].tail, found[at + 1].tail)) found[kept++] = found[at];
    }
    PyObject *keys = PyList_New(kept), *shown = PyList_New(kept);
    for (Py_ssize_t at = 0; keys && shown && at < kept; ++at) {
        PyList_SET_ITEM(keys, at, Py_NewRef(PyList_GET_ITEM(tails, found[at].at)));
        PyList_SET_ITEM(shown, at, Py_NewRef(PyList_GET_ITEM(values, found[at].at)));
    }
    PyMem_Free(found);
    return make_rows(keys, shown);
}

// Put a value under a tail into one context; 1: as a new row, 0: not, -1: an error is set.
int write_into(Hot* hot, PyObject* tail, PyObject* value) {
    SortedRows* rows = rows_of(hot);
    const bool has_rows = is_rows(hot->rows) && rows->last.size;
    // Above the latest row of a single open range: what a new post almost always is. Nothing else is looked at then,
    // which would not be in the cache.
    if (has_rows && hot->is_open() && compare(rows->last.key(rows->last.size - 1), piece_of(tail)) < 0) {
        return rows->last.insert(rows->last.size, tail, value) ? 1 : -1;
    }
    if (!hot->is_sound()) {
        PyErr_SetString(PyExc_TypeError, "contexts have native rows");
        return -1;
    }
    const int is_covered = covers(hot, tail);
    if (is_covered <= 0) return is_covered;
    PyObject* old = nullptr;
    const Put done = put(rows, tail, value, &old);
    Py_XDECREF(old);
    return done == Put::FAILED ? -1 : done == Put::NEW;
}

// Call a method of a context, whose result does not matter.
bool call(Hot* hot, const char* name, PyObject* tail, PyObject* value) {
    PyObject* self = reinterpret_cast<PyObject*>(hot);
    PyObject* done =
        tail ? PyObject_CallMethod(self, name, "OOi", tail, value, 0) : PyObject_CallMethod(self, name, nullptr);
    Py_XDECREF(done);
    return done;
}

// The same as `write_into` for a context that keeps some rows alone; 0 if Python has counted the row.
int write_into_capped(Hot* hot, PyObject* tail, PyObject* value, double now_s) {
    SortedRows* rows = rows_of(hot);
    const bool has_rows = is_rows(hot->rows) && rows->last.size;
    if (hot->room && has_rows && hot->is_open() && compare(rows->last.key(rows->last.size - 1), piece_of(tail)) < 0) {
        if (!rows->last.insert(rows->last.size, tail, value)) return -1;
        if (--hot->room < hot->room_over) go_stale(hot, now_s);
        return hot->room || call(hot, "cut", nullptr, nullptr) ? 1 : -1;
    }
    if (!hot->is_sound()) {
        PyErr_SetString(PyExc_TypeError, "contexts have native rows");
        return -1;
    }
    const int is_covered = covers(hot, tail);
    return is_covered <= 0 ? is_covered : call(hot, "place", tail, value) ? 0 : -1;
}

// For how many contexts what a write looks at is fetched at once.
constexpr uint32_t AHEAD = 32;

const SortedRows* rows_at(const Waiting* waiting, uint32_t at) {
    PyObject* rows = waiting->context(at)->rows;
    return is_rows(rows) && reinterpret_cast<const SortedRows*>(rows)->last.size
               ? reinterpret_cast<const SortedRows*>(rows)
               : nullptr;
}

// Fetch what writes into some contexts will look at, one thing of each after the other.
void look_ahead(const Waiting* waiting, uint32_t start, uint32_t stop) {
    for (uint32_t at = start; at < stop; ++at) fetch(waiting_contexts.place(waiting->numbers[at]));
    for (uint32_t at = start; at < stop; ++at) fetch(waiting->context(at));
    for (uint32_t at = start; at < stop; ++at) {
        const Hot* hot = waiting->context(at);
        fetch_to_write(hot->rows);
        fetch(hot->lower);
    }
    for (uint32_t at = start; at < stop; ++at) {
        if (const SortedRows* rows = rows_at(waiting, at)) {
            fetch_to_write(rows->last.entries + rows->last.size - 1);
            fetch_to_write(rows->last.entries + rows->last.size);
        }
    }
    for (uint32_t at = start; at < stop; ++at) {
        if (const SortedRows* rows = rows_at(waiting, at)) fetch(rows->last.entries[rows->last.size - 1].key);
    }
}

PyObject* write_into_dictionary(PyObject* contexts, PyObject* tail, PyObject* value) {
    Py_ssize_t place = 0, gained = 0;
    PyObject *context, *extras;
    while (PyDict_Next(contexts, &place, &context, &extras)) {
        if (!check_all(is_hot(context), "contexts are native")) return nullptr;
        const int done = write_into(hot_of(context), tail, value);
        if (done < 0) return nullptr;
        gained += done;
    }
    return PyLong_FromSsize_t(gained);
}

}  // namespace

Py_ssize_t write_to_all(const Waiting* waiting, PyObject* tail, PyObject* value, double now_s) {
    Py_ssize_t gained = 0;
    for (uint32_t at = 0; at < waiting->count; ++at) {
        if (at % AHEAD == 0) look_ahead(waiting, at, at + AHEAD < waiting->count ? at + AHEAD : waiting->count);
        Hot* hot = waiting->context(at);
        const int done = hot->is_capped ? write_into_capped(hot, tail, value, now_s) : write_into(hot, tail, value);
        if (done < 0) return -1;
        gained += done;
    }
    return gained;
}

namespace {

// apply_write(updaters, tail, value): see the function of this name.
PyObject* apply_write(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("apply_write", count, 3)) return nullptr;
    PyObject *updaters = arguments[0], *tail = arguments[1], *value = arguments[2];
    if (!check_all(PyBytes_CheckExact(tail) && PyBytes_CheckExact(value), "apply_write takes updaters, and bytes")) {
        return nullptr;
    }
    if (Py_TYPE(updaters) == waiting_type) {
        const Py_ssize_t gained = write_to_all(reinterpret_cast<const Waiting*>(updaters), tail, value, 0);
        return gained < 0 ? nullptr : PyLong_FromSsize_t(gained);
    }
    PyObject* contexts = PyObject_GetAttrString(updaters, "contexts");
    if (!contexts) return nullptr;
    PyObject* gained = check_all(PyDict_CheckExact(contexts), "contexts that wait are a dictionary")
                           ? write_into_dictionary(contexts, tail, value)
                           : nullptr;
    Py_DECREF(contexts);
    return gained;
}

PyMethodDef functions[] = {
    {"select", as_function(select), METH_FASTCALL, "See Timeline.select."},
    {"fill", as_function(fill), METH_FASTCALL, "See Timeline.fill."},
    {"newest_from", as_function(newest_from), METH_FASTCALL, "See Timeline.newest_from."},
    {"in_order", as_function(in_order), METH_FASTCALL, "Sort rows by their tails; of equal tails the last one stays."},
    {"apply_write", as_function(apply_write), METH_FASTCALL, "See timeline.apply_write."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_timeline_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
