// The Python type of engines: the verbs as its methods.
#include "arguments.hpp"
#include "records.hpp"
#include "row_lists.hpp"
#include "verbs.hpp"

#include <algorithm>

namespace pequod {

PyTypeObject* engine_type = nullptr;

bool HotEngine::is_sound() const {
    return ends && Py_TYPE(ends) == ends_type && reads && PyObject_TypeCheck(reads, numbers_type) && ledger &&
           PyObject_TypeCheck(ledger, ledger_type) && relations && PyDict_CheckExact(relations) && writer &&
           backfills && PyList_CheckExact(backfills) && effects && closed && deadlines &&
           Py_TYPE(deadlines) == deadlines_type;
}

namespace {

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
    {"apply_loaded", as_function(apply_loaded), METH_FASTCALL,
     "Apply changes of a database; return where it stopped, and how many keys of the others are loaded."},
    {nullptr, nullptr, 0, nullptr},
};

// As in pequod/engine/memory/ledger.py.
constexpr long long UNLIMITED = 1LL << 60;

// Verbs for Python's methods of an engine, which do themselves what is not quick.
bool is_whole(PyObject* self) { return check_all(engine_of(self)->is_sound(), "an engine has its parts"); }

// _put_quick(key, value): True; False: it is not quick.
PyObject* put_quick(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("_put_quick", count, 2) || !is_whole(self)) return nullptr;
    if (!PyBytes_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[1])) Py_RETURN_FALSE;
    const Ran ran = put(engine_of(self), arguments[0], arguments[1]);
    return ran == Ran::FAILED ? nullptr : PyBool_FromLong(ran == Ran::DONE);
}

// _put_for_quick(key, value, ttl_ms): the same of a row that expires.
PyObject* put_for_quick(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("_put_for_quick", count, 3) || !is_whole(self)) return nullptr;
    if (!PyBytes_CheckExact(arguments[0]) || !PyBytes_CheckExact(arguments[1])) Py_RETURN_FALSE;
    int is_long = 0;
    const long long ttl_ms = PyLong_AsLongLongAndOverflow(arguments[2], &is_long);
    if (ttl_ms == -1 && PyErr_Occurred()) return nullptr;
    // What is not a time is Python's to refuse.
    if (ttl_ms < 0 || is_long) Py_RETURN_FALSE;
    const Ran ran = put_for(engine_of(self), piece_of(arguments[0]), piece_of(arguments[1]), uint64_t(ttl_ms));
    return ran == Ran::FAILED ? nullptr : PyBool_FromLong(ran == Ran::DONE);
}

// _remove_quick(key): whether it was there; None: it is not quick.
PyObject* remove_quick(PyObject* self, PyObject* key) {
    if (!is_whole(self)) return nullptr;
    if (!PyBytes_CheckExact(key)) Py_RETURN_NONE;
    const Ran ran = remove(engine_of(self), key);
    if (ran == Ran::FAILED) return nullptr;
    return ran == Ran::NOT_QUICK ? Py_NewRef(Py_None) : PyBool_FromLong(ran == Ran::DONE);
}

// _expire_quick(keys_max): how many keys that were due it removed; and the next one, without its deadline, if it is due
// and Python's to remove, else None.
PyObject* expire_quick(PyObject* self, PyObject* argument) {
    const Py_ssize_t most = PyLong_AsSsize_t(argument);
    if (PyErr_Occurred() || !is_whole(self)) return nullptr;
    Py_ssize_t count = 0;
    PyObject* key = nullptr;
    while (count < most) {
        const Ran ran = expire(engine_of(self), &key);
        if (ran == Ran::FAILED) return nullptr;
        if (ran != Ran::DONE) break;
        ++count;
    }
    return Py_BuildValue("(nN)", count, key ? key : Py_NewRef(Py_None));
}

// _get_quick(key, now): its value, or None; False: it is not quick.
PyObject* get_quick(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("_get_quick", count, 2) || !is_whole(self)) return nullptr;
    if (!PyBytes_CheckExact(arguments[0])) Py_RETURN_FALSE;
    const double now = PyFloat_AsDouble(arguments[1]);
    if (now == -1.0 && PyErr_Occurred()) return nullptr;
    PyObject* value = nullptr;
    const Ran ran = get(engine_of(self), piece_of(arguments[0]), {0, nullptr, 0, 0}, now, &value);
    if (ran == Ran::FAILED) return nullptr;
    if (ran == Ran::NOT_QUICK) Py_RETURN_FALSE;
    return Py_NewRef(ran == Ran::DONE ? value : Py_None);
}

// _scan_quick(first, last, limit, reverse, now): its rows; None: it is not quick.
PyObject* scan_quick(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("_scan_quick", count, 5) || !is_whole(self)) return nullptr;
    PyObject *first = arguments[0], *last = arguments[1], *limit = arguments[2];
    if (!PyBytes_CheckExact(first) || !PyBytes_CheckExact(last)) Py_RETURN_NONE;
    size_t most;
    if (!read_limit(limit, &most)) return nullptr;
    const bool is_down = arguments[3] == Py_True;
    const double now = PyFloat_AsDouble(arguments[4]);
    if (now == -1.0 && PyErr_Occurred()) return nullptr;
    // Where memory is limited, Python evicts what a log has made too much.
    const bool may_refresh = reinterpret_cast<HotLedger*>(engine_of(self)->ledger)->weigh_at >= UNLIMITED;
    Span span;
    const Ran ran =
        find_span(engine_of(self), piece_of(first), piece_of(last), hash_of(piece_of(last)), now, may_refresh, &span);
    if (ran != Ran::DONE) return ran == Ran::FAILED ? nullptr : Py_NewRef(Py_None);
    count_hit(engine_of(self), span);
    const size_t found = span.rows ? std::min(count_between(span.rows, span.start, span.stop), most) : 0;
    return list_rows(span.rows, is_down ? span.stop : span.start, found, is_down ? -1 : 1, span.prefix);
}

PyMethodDef methods[] = {
    {"_put_quick", as_function(put_quick), METH_FASTCALL, "Put a row; return whether that was quick."},
    {"_put_for_quick", as_function(put_for_quick), METH_FASTCALL,
     "Put a row that expires; return whether that was quick."},
    {"_remove_quick", remove_quick, METH_O, "Remove a row; return whether it was there, None if it is not quick."},
    {"_expire_quick", expire_quick, METH_O,
     "Remove keys that are due; return how many, and the next, if it is not quick."},
    {"_get_quick", as_function(get_quick), METH_FASTCALL, "Return a value or None; False if it is not quick."},
    {"_scan_quick", as_function(scan_quick), METH_FASTCALL, "Return rows; None if it is not quick."},
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
    {"_recording", T_OBJECT_EX, offsetof(HotEngine, backfills), 0, nullptr},
    {"_effects", T_OBJECT_EX, offsetof(HotEngine, effects), 0, nullptr},
    {"_closed", T_OBJECT_EX, offsetof(HotEngine, closed), 0, nullptr},
    {"_deadlines", T_OBJECT_EX, offsetof(HotEngine, deadlines), 0, nullptr},
    {"_now_s", T_DOUBLE, offsetof(HotEngine, now_s), 0, nullptr},
    {"_log_max", T_LONGLONG, offsetof(HotEngine, log_max), 0, nullptr},
    PEQUOD_LAST_MEMBER,
};

}  // namespace

int add_engine_type(PyObject* module) {
    engine_type = make_record_type<HotEngine>("pequod.native._hot.HotEngine", members, methods);
    if (!engine_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotEngine", reinterpret_cast<PyObject*>(engine_type));
}

}  // namespace pequod
