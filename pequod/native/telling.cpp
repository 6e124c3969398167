#include "telling.hpp"

#include "arguments.hpp"
#include "copying.hpp"
#include "counting.hpp"
#include "state.hpp"
#include "timeline.hpp"
#include "told.hpp"

#include <algorithm>

namespace pequod {

namespace {

// Nothing beside the contexts themselves is concerned if a change is noted in their logs.
bool are_notable(const HotEngine* engine, const Waiting* waiting) {
    for (uint32_t at = 0; at < waiting->count; ++at) {
        const Hot* hot = waiting->context(at);
        if (hot->log && PyDict_GET_SIZE(hot->log) >= engine->log_max) return false;
        if (hot->dependants && PyDict_GET_SIZE(hot->dependants)) return false;
    }
    return true;
}

// Whether a row of this tail changes nothing, since it is beyond what contexts know that keep some rows alone. 0:
// Python places it; -1: an error is set.
int is_beyond_all(const Waiting* waiting, PyObject* tail) {
    static PyObject* name = PyUnicode_InternFromString("is_beyond");
    if (!name) return -1;
    for (uint32_t at = 0; at < waiting->count; ++at) {
        PyObject* found = PyObject_CallMethodOneArg(reinterpret_cast<PyObject*>(waiting->context(at)), name, tail);
        const int is_beyond = found ? PyObject_IsTrue(found) : -1;
        Py_XDECREF(found);
        if (is_beyond <= 0) return is_beyond;
    }
    return 1;
}

// Whether a row that goes is taken out of all who wait, or changes none of them; false: Python does it, or an error is
// set.
bool are_removable(const Told& told) {
    if (!told.waiting->count) return false;
    if (!told.waiting->context(0)->is_capped) return true;
    PyObject* tail = tail_of(told.route, told.match);
    const bool are = tail && is_beyond_all(told.waiting, tail) > 0;
    Py_XDECREF(tail);
    return are;
}

// Whether those who wait count a row more or less by themselves; false: Python counts, or an error is set.
bool are_countable(const Told& told) {
    PyObject* tail = tail_of(told.route, told.match);
    const bool are = tail && can_count(told.waiting, tail, told.change->value ? 1 : -1) > 0;
    Py_XDECREF(tail);
    return are;
}

// Whether those who wait are told without Python; false: they are not, or an error is set.
bool can_tell(const HotEngine* engine, const Told& told) {
    const Route* route = told.route;
    if (route->is_count) return are_countable(told);
    if (route->is_followed && !route->tells_watches && !route->tells_joins) return false;
    if (route->is_check) return !route->is_followed && are_notable(engine, told.waiting);
    return told.change->value || are_removable(told);
}

// Add those who wait at one site; false: they are Python's, or an error is set.
bool find_told_at(const HotEngine* engine, PyObject* site, const Change& change, ToldAll* found) {
    if (!PyObject_TypeCheck(site, site_type)) return false;
    PyObject* route_object = site_of(site)->route;
    if (!route_object || Py_TYPE(route_object) != route_type) return !PyObject_IsTrue(site);
    const Route* route = reinterpret_cast<const Route*>(route_object);
    const bool counts_presence = route->is_check || route->is_count;
    if (counts_presence && !change.old == !change.value) return true;
    Told* told = found->next();
    if (!told) return false;
    told->waiting = waiting_at(route, piece_of(change.key), &told->match);
    if (!told->waiting) return true;
    told->site = site;
    told->route = route;
    told->change = &change;
    if (!can_tell(engine, *told)) return false;
    found->add_next();
    return true;
}

// Add those who wait at the sites of a list; false: see `find_told_at`.
bool find_told_of(const HotEngine* engine, PyObject* sites, const Change& change, ToldAll* found) {
    bool is_quick = PyList_CheckExact(sites);
    for (Py_ssize_t at = 0; is_quick && at < PyList_GET_SIZE(sites); ++at) {
        is_quick = find_told_at(engine, PyList_GET_ITEM(sites, at), change, found);
    }
    return is_quick;
}

// Whether some context waits at a site. An error may be set.
bool is_waited_at(PyObject* site) {
    PyObject* route = PyObject_TypeCheck(site, site_type) ? site_of(site)->route : nullptr;
    if (!route || Py_TYPE(route) != route_type) return PyObject_IsTrue(site);
    return reinterpret_cast<const Route*>(route)->frames->table.size;
}

// The same of the sites of a projection.
bool is_anybody_waiting(const HotProjection* projection) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(projection->readers); ++at) {
        PyObject* sites = PyList_GET_ITEM(projection->readers, at);
        if (!PyList_CheckExact(sites)) return true;
        for (Py_ssize_t site = 0; site < PyList_GET_SIZE(sites); ++site) {
            if (is_waited_at(PyList_GET_ITEM(sites, site))) return true;
        }
    }
    return false;
}

// Add those who wait for what a record shows; false: Python looks at it, or an error is set.
bool find_shown(const HotEngine* engine, const HotProjection* projection, const Change& change, ToldAll* found) {
    if (!projection->index || !PyObject_TypeCheck(projection->index, index_type)) return false;
    if (!projection->readers || !PyList_CheckExact(projection->readers)) return false;
    HotIndex* index = reinterpret_cast<HotIndex*>(projection->index);
    if (index->rows == Py_None && index->begun == Py_None && !is_anybody_waiting(projection)) return !PyErr_Occurred();
    const Look* look = found->add_look(index, change);
    if (!look) return false;
    for (size_t at = 0; at < look->count(); ++at) {
        for (Py_ssize_t reader = 0; reader < PyList_GET_SIZE(projection->readers); ++reader) {
            PyObject* sites = PyList_GET_ITEM(projection->readers, reader);
            if (!find_told_of(engine, sites, look->at(at), found)) return false;
        }
    }
    return true;
}

void find_told(const HotEngine* engine, PyObject* readers, const Change& change, ToldAll* found) {
    found->is_quick = !PyList_GET_SIZE(engine->backfills);
    for (Py_ssize_t at = 0; found->is_quick && at < PyList_GET_SIZE(readers); ++at) {
        PyObject* sites = PyList_GET_ITEM(readers, at);
        // A list first, which most are: to ask for a subclass walks over the bases of a type.
        found->is_quick = !PyList_CheckExact(sites) && is_projection(sites)
                              ? find_shown(engine, projection_of(sites), change, found)
                              : find_told_of(engine, sites, change, found);
    }
}

// Note a change in the log of every context, and let it go stale. An error is set on failure.
bool note_all(HotEngine* engine, const Told& told) {
    static PyObject* present = PyBytes_FromStringAndSize("", 0);
    if (!present) return false;
    const long long grown_bytes = sizes.log_entry + PyBytes_GET_SIZE(told.change->key);
    for (uint32_t at = 0; at < told.waiting->count; ++at) {
        Hot* hot = told.waiting->context(at);
        if (!ledger_of(hot)) return false;
        if (note(hot, told.route->depth, told.change->key, told.change->old ? present : Py_None, grown_bytes) < 0)
            return false;
        go_stale(hot, engine->now_s);
    }
    return true;
}

// Who is told of the rows of a site's join, if it is followed. False: an error is set.
bool find_followers(const Told& told, Changed* changed, Followers* followers) {
    const bool are_listed = told.route->is_followed && !told.route->tells_watches;
    *followers = {told.site, are_listed ? changed->list_of(told.route) : nullptr};
    return !are_listed || followers->changed;
}

// Copy a value into every context, as `Writer._fan_out` does. An error is set on failure.
bool copy_to_all(HotEngine* engine, const Told& told, Changed* changed) {
    Followers followers;
    PyObject* tail = find_followers(told, changed, &followers) ? tail_of(told.route, told.match) : nullptr;
    if (!tail) return false;
    const long long tail_bytes = told.change->old ? 0 : sizes.tail + PyBytes_GET_SIZE(tail);
    const Py_ssize_t gained = told.route->is_followed
                                  ? copy_to_followed(followers, told.waiting, tail, told.change->value)
                                  : write_to_all(told.waiting, tail, told.change->value, engine->now_s);
    Py_DECREF(tail);
    if (gained < 0) return false;
    told.waiting->tail_bytes += tail_bytes;
    fan_out(reinterpret_cast<HotLedger*>(engine->ledger), gained, tail_bytes);
    return true;
}

// Count a row more or less in every context. An error is set on failure.
bool count_it(const Told& told, Changed* changed) {
    const bool is_watched = told.route->is_followed && told.route->tells_watches;
    PyObject* rows = is_watched                ? PyList_New(0)
                     : told.route->is_followed ? Py_XNewRef(changed->list_of(told.route))
                                               : nullptr;
    if (told.route->is_followed && !rows) return false;
    PyObject* tail = tail_of(told.route, told.match);
    PyObject* join = tail ? PyObject_GetAttrString(told.site, "join") : nullptr;
    const bool is_done = join && count_in_all(told.waiting, tail, told.change->value ? 1 : -1, join, rows) &&
                         (!is_watched || tell_counts(told.site, rows));
    Py_XDECREF(join);
    Py_XDECREF(tail);
    Py_XDECREF(rows);
    return is_done;
}

// The same as `copy_to_all` for a row that has gone, or that there was before; `is_beyond`: it has no place in any of
// those who wait. An error is set on failure.
bool replace_in_all(const Told& told, const Followers* followers, PyObject* tail, bool is_beyond) {
    Waiting* waiting = told.waiting;
    const long long size = sizes.tail + PyBytes_GET_SIZE(tail);
    const long long tail_bytes = !told.change->old     ? size
                                 : !told.change->value ? -std::min(size, waiting->tail_bytes)
                                                       : 0;
    HotLedger* ledger = ledger_of(waiting->context(0));
    if (!ledger) return false;
    waiting->tail_bytes += tail_bytes;
    Py_ssize_t gained = 0;
    if (!is_beyond && told.change->value) gained = write_to_all(waiting, tail, told.change->value, 0);
    for (uint32_t at = 0; !is_beyond && !told.change->value && at < waiting->count; ++at) {
        if (!take_row_out(followers, waiting->context(at), tail)) return false;
    }
    if (gained < 0) return false;
    fan_out(ledger, gained, tail_bytes);
    return true;
}

// Take a row out of every context. An error is set on failure.
bool remove_from_all(const Told& told, Changed* changed) {
    Followers followers;
    PyObject* tail = find_followers(told, changed, &followers) ? tail_of(told.route, told.match) : nullptr;
    const bool is_done = tail && replace_in_all(told, told.route->is_followed ? &followers : nullptr, tail,
                                                told.waiting->context(0)->is_capped);
    Py_XDECREF(tail);
    return is_done;
}

// tell_row(route, key, old, new): see the Python function of this name.
PyObject* tell_row(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("tell_row", count, 4)) return nullptr;
    const Change change = {arguments[1], arguments[2] == Py_None ? nullptr : arguments[2],
                           arguments[3] == Py_None ? nullptr : arguments[3]};
    if (!check_all(Py_TYPE(arguments[0]) == route_type && PyBytes_CheckExact(change.key) &&
                       (!change.value || PyBytes_CheckExact(change.value)),
                   "tell_row takes a route, a key and two values")) {
        return nullptr;
    }
    const Route* route = reinterpret_cast<const Route*>(arguments[0]);
    if (route->is_followed || route->is_check || route->is_count) Py_RETURN_FALSE;
    Told told;
    told.route = route;
    told.change = &change;
    told.waiting = waiting_at(route, piece_of(change.key), &told.match);
    if (!told.waiting || !told.waiting->count) Py_RETURN_TRUE;
    PyObject* tail = tail_of(route, told.match);
    if (!tail) return nullptr;
    const bool is_capped = told.waiting->context(0)->is_capped;
    int is_told = is_capped ? is_beyond_all(told.waiting, tail) : 1;
    if (is_told > 0 && !replace_in_all(told, nullptr, tail, is_capped)) is_told = -1;
    Py_DECREF(tail);
    return is_told < 0 ? nullptr : PyBool_FromLong(is_told);
}

PyMethodDef functions[] = {
    {"tell_row", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(tell_row)), METH_FASTCALL,
     "Bring the rows up to date that follow from a changed plain row; return whether that is done."},
    {nullptr, nullptr, 0, nullptr},
};

// A change of whose readers Python has to bring some up to date counts as this many rows that follow.
constexpr size_t TOLD_BY_PYTHON = 64;

// Those whose rows watches follow: what the next ones of them look at is fetched at once.
constexpr size_t AHEAD = 16;

void look_ahead(const ToldAll& found, size_t start) {
    const size_t stop = start + AHEAD < found.count() ? start + AHEAD : found.count();
    for (unsigned step = 0; step < STEPS_AHEAD; ++step) {
        for (size_t at = start; at < stop; ++at) {
            const Told& told = found.at(at);
            if (told.route->is_followed) look_ahead(told.site, told.waiting, step);
        }
    }
}

// Tell all who wait of a change. An error is set on failure.
bool tell_all(HotEngine* engine, const ToldAll& found, Changed* changed, size_t* count) {
    bool is_told = found.change_indexes();
    for (size_t at = 0; is_told && at < found.count(); ++at) {
        if (at % AHEAD == 0 && found.count() > 1) look_ahead(found, at);
        const Told& told = found.at(at);
        *count += told.waiting->count;
        is_told = told.route->is_check   ? note_all(engine, told)
                  : told.route->is_count ? count_it(told, changed)
                  : told.change->value   ? copy_to_all(engine, told, changed)
                                         : remove_from_all(told, changed);
    }
    return is_told;
}

PyObject* or_none(PyObject* value) { return value ? value : Py_None; }

// Bring up to date what depends on a key, but for what depends on the rows that change. An error is set on failure.
bool tell_once(HotEngine* engine, PyObject* readers, const Change& change, Changed* changed, size_t* count) {
    ToldAll found;
    find_told(engine, readers, change, &found);
    if (PyErr_Occurred()) return false;
    if (found.is_quick) return tell_all(engine, found, changed, count);
    *count += TOLD_BY_PYTHON;
    static PyObject* name = PyUnicode_InternFromString("base_changed");
    PyObject* done = name ? PyObject_CallMethodObjArgs(engine->writer, name, readers, change.key, or_none(change.old),
                                                       or_none(change.value), nullptr)
                          : nullptr;
    Py_XDECREF(done);
    return done;
}

// Tell the joins that read a row, as `count_in_all` lists it. An error is set on failure.
bool tell_joins(HotEngine* engine, PyObject* row, Changed* changed, size_t* count) {
    const auto value_at = [row](Py_ssize_t at) {
        PyObject* value = PyTuple_GET_ITEM(row, at);
        return value == Py_None ? nullptr : value;
    };
    PyObject* readers = PyObject_GetAttrString(PyTuple_GET_ITEM(row, 0), "downstreams");
    const Piece prefix = piece_of(hot_of(PyTuple_GET_ITEM(row, 1))->prefix);
    PyObject* key = readers ? concatenated(prefix, piece_of(PyTuple_GET_ITEM(row, 2)), Piece{"", 0}) : nullptr;
    const bool is_told = key && check_all(PyList_CheckExact(readers), "the readers of a join are a list") &&
                         tell_once(engine, readers, {key, value_at(3), value_at(4)}, changed, count);
    Py_XDECREF(key);
    Py_XDECREF(readers);
    return is_told;
}

}  // namespace

bool tell_readers(HotEngine* engine, PyObject* readers, const Change& change, size_t* count) {
    if (!PyList_GET_SIZE(readers)) return true;
    Changed changed;
    bool is_told = tell_once(engine, readers, change, &changed, count);
    // They become more as joins over joins change.
    for (Py_ssize_t at = 0; is_told && changed.for_joins && at < PyList_GET_SIZE(changed.for_joins); ++at) {
        PyObject* row = Py_NewRef(PyList_GET_ITEM(changed.for_joins, at));
        is_told = tell_joins(engine, row, &changed, count);
        Py_DECREF(row);
    }
    if (!is_told || !changed.for_python) return is_told;
    *count += TOLD_BY_PYTHON;
    PyObject* done = PyObject_CallMethod(engine->writer, "tell_changed", "O", changed.for_python);
    Py_XDECREF(done);
    return done;
}

int add_telling_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
