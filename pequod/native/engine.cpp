#include "engine.hpp"

#include "arguments.hpp"
#include "records.hpp"
#include "routes.hpp"
#include "state.hpp"
#include "timeline.hpp"

namespace pequod {

PyTypeObject* engine_type = nullptr;

bool HotEngine::is_sound() const {
    return ends && Py_TYPE(ends) == ends_type && reads && PyObject_TypeCheck(reads, numbers_type) && ledger &&
           PyObject_TypeCheck(ledger, ledger_type) && relations && PyDict_CheckExact(relations) && writer;
}

namespace {

// What became of something that is not quick.
Ran not_quick() { return PyErr_Occurred() ? Ran::FAILED : Ran::NOT_QUICK; }

// The relations of a key's table if clients write that, and nobody watches it; else null.
HotRelations* quick_relations(HotEngine* engine, Piece key) {
    HotRelations* relations = relations_at(engine->relations, key);
    return relations && !relations->is_owned ? relations : nullptr;
}

// Whether Python need not be told of changes of a table's rows, or tells the joins alone.
bool is_quiet(const HotRelations* relations) {
    return !relations->is_watched && relations->readers && PyList_CheckExact(relations->readers);
}

// The same for a key that is written.
HotRelations* written_relations(HotEngine* engine, Piece key) {
    if (!key.size || static_cast<long long>(key.size) > engine->key_bytes_max) return nullptr;
    HotRelations* relations = quick_relations(engine, key);
    return relations && is_quiet(relations) ? relations : nullptr;
}

// Whether the ledger need not be looked at before a value of this size is written.
bool has_room(const HotEngine* engine, size_t value_bytes) {
    return static_cast<long long>(value_bytes) <= engine->value_bytes_quick &&
           engine->revision < reinterpret_cast<HotLedger*>(engine->ledger)->weigh_at;
}

// A change of a written key: the values are null if the key was or is absent.
struct Change {
    PyObject* key;
    PyObject* old;
    PyObject* value;
};

// Those who wait for a change, by a route.
struct Told {
    const Route* route;
    Waiting* waiting;
    Match match;
};

// Those who wait for a change, of all routes; not quick: Python tells them.
struct ToldAll {
    static constexpr size_t MOST = 8;
    bool is_quick;
    size_t count;
    Told told[MOST];
};

// Nothing beside the contexts themselves is concerned if a change is noted in their logs.
bool are_notable(const HotEngine* engine, const Waiting* waiting) {
    for (uint32_t at = 0; at < waiting->count; ++at) {
        const Hot* hot = waiting->context(at);
        if (hot->log && PyDict_GET_SIZE(hot->log) >= engine->log_max) return false;
        if (hot->dependants && PyDict_GET_SIZE(hot->dependants)) return false;
    }
    return true;
}

// Add those who wait at one site; false: they are Python's, or an error is set.
bool find_told_at(const HotEngine* engine, PyObject* site, const Change& change, ToldAll* found) {
    static PyObject* name = PyUnicode_InternFromString("route");
    PyObject* route_object = name ? PyObject_GetAttr(site, name) : nullptr;
    if (!route_object) return false;
    // The site has it.
    Py_DECREF(route_object);
    if (Py_TYPE(route_object) != route_type) return !PyObject_IsTrue(site);
    const Route* route = reinterpret_cast<const Route*>(route_object);
    if (route->is_check && !change.old == !change.value) return true;
    Told& told = found->told[found->count];
    Waiting* waiting = waiting_at(route, piece_of(change.key), &told.match);
    if (!waiting) return true;
    if (route->is_followed || (route->is_check ? !are_notable(engine, waiting) : !change.value)) return false;
    told.route = route;
    told.waiting = waiting;
    return ++found->count < ToldAll::MOST;
}

bool has_backfills(const HotEngine* engine) {
    static PyObject* name = PyUnicode_InternFromString("backfills");
    PyObject* backfills = name ? PyObject_GetAttr(engine->writer, name) : nullptr;
    const bool are_there = !backfills || PyObject_IsTrue(backfills);
    Py_XDECREF(backfills);
    return are_there;
}

void find_told(const HotEngine* engine, PyObject* readers, const Change& change, ToldAll* found) {
    found->count = 0;
    found->is_quick = !has_backfills(engine);
    for (Py_ssize_t at = 0; found->is_quick && at < PyList_GET_SIZE(readers); ++at) {
        PyObject* sites = PyList_GET_ITEM(readers, at);
        found->is_quick = PyList_CheckExact(sites);
        for (Py_ssize_t site = 0; found->is_quick && site < PyList_GET_SIZE(sites); ++site) {
            found->is_quick = find_told_at(engine, PyList_GET_ITEM(sites, site), change, found);
        }
    }
}

// Note a change in the log of every context, and let it go stale. An error is set on failure.
bool note_all(HotEngine* engine, const Told& told, const Change& change) {
    static PyObject* present = PyBytes_FromStringAndSize("", 0);
    if (!present) return false;
    const long long grown_bytes = sizes.log_entry + PyBytes_GET_SIZE(change.key);
    for (uint32_t at = 0; at < told.waiting->count; ++at) {
        Hot* hot = told.waiting->context(at);
        if (!ledger_of(hot)) return false;
        if (note(hot, told.route->depth, change.key, change.old ? present : Py_None, grown_bytes) < 0) return false;
        go_stale(hot, engine->now_s);
    }
    return true;
}

// Copy a value into every context, as `Writer._fan_out` does. An error is set on failure.
bool copy_to_all(HotEngine* engine, const Told& told, const Change& change) {
    PyObject* tail = tail_of(told.route, told.match);
    if (!tail) return false;
    const long long tail_bytes = change.old ? 0 : sizes.tail + PyBytes_GET_SIZE(tail);
    const Py_ssize_t gained = write_to_all(told.waiting, tail, change.value);
    Py_DECREF(tail);
    if (gained < 0) return false;
    told.waiting->tail_bytes += tail_bytes;
    fan_out(reinterpret_cast<HotLedger*>(engine->ledger), gained, tail_bytes);
    return true;
}

// A change of whose readers Python has to bring some up to date counts as this many rows that follow.
constexpr size_t TOLD_BY_PYTHON = 64;

// Bring up to date what depends on a key, and count it. An error is set on failure.
bool tell_readers(HotEngine* engine, PyObject* readers, const Change& change, size_t* count) {
    if (!PyList_GET_SIZE(readers)) return true;
    ToldAll found;
    find_told(engine, readers, change, &found);
    if (PyErr_Occurred()) return false;
    bool is_told = true;
    for (size_t at = 0; found.is_quick && is_told && at < found.count; ++at) {
        const Told& told = found.told[at];
        *count += told.waiting->count;
        is_told = told.route->is_check ? note_all(engine, told, change) : copy_to_all(engine, told, change);
    }
    if (found.is_quick) return is_told;
    *count += TOLD_BY_PYTHON;
    static PyObject* name = PyUnicode_InternFromString("base_changed");
    PyObject* done =
        name ? PyObject_CallMethodObjArgs(engine->writer, name, readers, change.key, change.old ? change.old : Py_None,
                                          change.value ? change.value : Py_None, nullptr)
             : nullptr;
    Py_XDECREF(done);
    return done;
}

// Put a row of a table, and count what was told of it.
Ran put_into(HotEngine* engine, HotRelations* relations, SortedRows* rows, PyObject* key, PyObject* value,
             size_t* told) {
    HotTable* table = table_of(relations->table);
    PyObject* old = nullptr;
    const Put done = put(rows, key, value, &old);
    if (done == Put::FAILED) return Ran::FAILED;
    table->value_bytes += static_cast<long long>(piece_of(value).size);
    if (old) {
        table->value_bytes -= static_cast<long long>(piece_of(old).size);
    } else {
        ++table->entry_count;
        table->key_bytes += static_cast<long long>(piece_of(key).size);
    }
    bool is_told = true;
    if (!old || !is_equal(piece_of(old), piece_of(value))) {
        ++engine->revision;
        is_told = tell_readers(engine, relations->readers, {key, old, value}, told);
    }
    Py_XDECREF(old);
    return is_told ? Ran::DONE : Ran::FAILED;
}

}  // namespace

Ran put(HotEngine* engine, Piece key, Piece value) {
    HotRelations* relations = written_relations(engine, key);
    if (!relations || !has_room(engine, value.size)) return not_quick();
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    PyObject* own_value = PyBytes_FromStringAndSize(value.start, Py_ssize_t(value.size));
    Ran ran = Ran::FAILED;
    if (own_key && own_value) {
        SortedRows* rows = rows_for(table_of(relations->table), key);
        size_t told = 0;
        ran = rows ? put_into(engine, relations, rows, own_key, own_value, &told) : not_quick();
    }
    Py_XDECREF(own_key);
    Py_XDECREF(own_value);
    return ran;
}

Ran remove(HotEngine* engine, Piece key) {
    HotRelations* relations = written_relations(engine, key);
    if (!relations) return not_quick();
    HotTable* table = table_of(relations->table);
    const Found found = rows_of(table, key);
    if (!found.is_quick) return not_quick();
    if (!found.rows) return Ran::ABSENT;
    // A group that becomes empty is Python's to take out.
    const bool is_group = reinterpret_cast<PyObject*>(found.rows) != table->loose;
    if (is_group && !found.rows->older_size && found.rows->last.size < 2) return Ran::NOT_QUICK;
    PyObject* own_key = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    if (!own_key) return Ran::FAILED;
    PyObject* old = remove(found.rows, key);
    Ran ran = Ran::ABSENT;
    if (old) {
        --table->entry_count;
        table->key_bytes -= static_cast<long long>(key.size);
        table->value_bytes -= static_cast<long long>(piece_of(old).size);
        ++engine->revision;
        size_t told = 0;
        ran = tell_readers(engine, relations->readers, {own_key, old, nullptr}, &told) ? Ran::DONE : Ran::FAILED;
        Py_DECREF(old);
    }
    Py_DECREF(own_key);
    return ran;
}

Ran get(HotEngine* engine, Piece key, const Seen& seen, PyObject** value) {
    HotRelations* relations = quick_relations(engine, key);
    if (!relations) return not_quick();
    const Found found = rows_of(table_of(relations->table), key);
    if (!found.is_quick) return not_quick();
    if (!found.rows) return Ran::ABSENT;
    *value = seen.value_in(found.rows, key);
    if (*value) return Ran::DONE;
    const Place place = lower_bound(found.rows, key);
    const Leaf& leaf = found.rows->leaf(place.leaf);
    if (place.at == leaf.size || !is_equal(leaf.key(place.at), key)) return Ran::ABSENT;
    *value = leaf.entries[place.at].value;
    return Ran::DONE;
}

Ran rows_between(HotEngine* engine, Piece first, Piece last, SortedRows** rows) {
    HotRelations* relations = quick_relations(engine, first);
    if (!relations) return not_quick();
    const HotTable* table = table_of(relations->table);
    if (compare(first, last) >= 0 || compare(last, piece_of(table->end)) > 0) return Ran::NOT_QUICK;
    const Found found = rows_within(table, first, last);
    if (!found.is_quick) return not_quick();
    *rows = found.rows;
    return Ran::DONE;
}

namespace {

// How a change of a database went.
enum class Applied { YES, NOT_LOADED, NOT_QUICK, FAILED };

Applied apply(HotEngine* engine, PyObject* key, PyObject* value, size_t* told) {
    HotRelations* relations = relations_at(engine->relations, piece_of(key));
    HotTable* table = relations ? table_of(relations->table) : nullptr;
    if (!table || !table->loaded || !is_rows(table->loaded) || !relations->searched ||
        !PyList_CheckExact(relations->searched)) {
        return PyErr_Occurred() ? Applied::FAILED : Applied::NOT_QUICK;
    }
    if (!is_loaded(table, piece_of(key))) {
        // Its row may be of a searched range.
        return PyList_GET_SIZE(relations->searched) ? Applied::NOT_QUICK : Applied::NOT_LOADED;
    }
    const bool is_quick = PyBytes_CheckExact(value) && is_quiet(relations) && has_room(engine, piece_of(value).size);
    SortedRows* rows = is_quick ? rows_for(table, piece_of(key)) : nullptr;
    if (!rows) return PyErr_Occurred() ? Applied::FAILED : Applied::NOT_QUICK;
    return put_into(engine, relations, rows, key, value, told) == Ran::FAILED ? Applied::FAILED : Applied::YES;
}

// apply_loaded(engine, changes, start, told_max): apply changes of a database, a tuple or list of (key, value), from
// `start` on, as long as they are quick and fewer than `told_max` of them and of rows that follow are written. Return
// the place of the next one, which may be Python's to do, and how many keys of the others lie in loaded ranges.
PyObject* apply_loaded(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("apply_loaded", count, 4)) return nullptr;
    PyObject* changes = arguments[1];
    Py_ssize_t at = PyLong_AsSsize_t(arguments[2]);
    const size_t told_max = PyLong_AsSize_t(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(PyObject_TypeCheck(arguments[0], engine_type) && engine_of(arguments[0])->is_sound() &&
                       (PyTuple_CheckExact(changes) || PyList_CheckExact(changes)) && at >= 0,
                   "apply_loaded takes an engine, a tuple or list of changes, and two numbers")) {
        return nullptr;
    }
    HotEngine* engine = engine_of(arguments[0]);
    size_t told = 0;
    Py_ssize_t applied = 0;
    // Python code may run in between, and change a list.
    for (; at < PySequence_Fast_GET_SIZE(changes) && told < told_max; ++at) {
        PyObject* change = Py_NewRef(PySequence_Fast_GET_ITEM(changes, at));
        const bool is_change =
            PyTuple_Check(change) && PyTuple_GET_SIZE(change) == 2 && PyBytes_CheckExact(PyTuple_GET_ITEM(change, 0));
        const Applied done = is_change ? apply(engine, PyTuple_GET_ITEM(change, 0), PyTuple_GET_ITEM(change, 1), &told)
                                       : Applied::NOT_QUICK;
        Py_DECREF(change);
        if (done == Applied::FAILED) return nullptr;
        if (done == Applied::NOT_QUICK) break;
        told += done == Applied::YES;
        applied += done == Applied::YES;
    }
    return Py_BuildValue("(nn)", at, applied);
}

PyMethodDef functions[] = {
    {"apply_loaded", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(apply_loaded)), METH_FASTCALL,
     "Apply changes of a database; return where it stopped, and how many keys of the others are loaded."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    PEQUOD_MEMBER(HotEngine, revision, T_LONGLONG),
    {"_key_bytes_max", T_LONGLONG, offsetof(HotEngine, key_bytes_max), 0, nullptr},
    {"_value_bytes_quick", T_LONGLONG, offsetof(HotEngine, value_bytes_quick), 0, nullptr},
    {"_ends", T_OBJECT_EX, offsetof(HotEngine, ends), 0, nullptr},
    {"_reads", T_OBJECT_EX, offsetof(HotEngine, reads), 0, nullptr},
    {"ledger", T_OBJECT_EX, offsetof(HotEngine, ledger), 0, nullptr},
    {"_relations", T_OBJECT_EX, offsetof(HotEngine, relations), 0, nullptr},
    {"_writer", T_OBJECT_EX, offsetof(HotEngine, writer), 0, nullptr},
    {"_now_s", T_DOUBLE, offsetof(HotEngine, now_s), 0, nullptr},
    {"_log_max", T_LONGLONG, offsetof(HotEngine, log_max), 0, nullptr},
    PEQUOD_LAST_MEMBER,
};

}  // namespace

int add_engine_type(PyObject* module) {
    engine_type = make_record_type<HotEngine>("pequod.native._hot.HotEngine", members);
    if (!engine_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotEngine", reinterpret_cast<PyObject*>(engine_type));
}

}  // namespace pequod
