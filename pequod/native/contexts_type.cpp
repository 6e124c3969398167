// The Python types of contexts, and of the records that they count in.
#include "arguments.hpp"
#include "frames.hpp"
#include "records.hpp"
#include "state.hpp"

#include <structmember.h>

#include <cstddef>
#include <utility>

namespace pequod {

PyTypeObject* counters_type = nullptr;
PyTypeObject* ledger_type = nullptr;
PyTypeObject* numbers_type = nullptr;
PyTypeObject* hot_type = nullptr;

namespace {

int hot_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return hot_of(self)->each([=](PyObject** member) { return *member ? visit(*member, arg) : 0; });
}

int hot_clear(PyObject* self) {
    return hot_of(self)->each([](PyObject** member) {
        Py_CLEAR(*member);
        return 0;
    });
}

void hot_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    let_go(hot_of(self));
    hot_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

// let_go(): wait nowhere; return by how many bytes that changes what the ledger has.
PyObject* hot_let_go(PyObject* self, PyObject*) { return PyLong_FromLongLong(let_go(hot_of(self))); }

// hand_over(other): let another context wait where this one does; return by how many bytes that changes the ledger.
PyObject* hot_hand_over(PyObject* self, PyObject* other) {
    if (!is_hot(other) || other == self) {
        PyErr_SetString(PyExc_TypeError, "hand_over takes another context");
        return nullptr;
    }
    long long grown_bytes = 0;
    if (!hand_over(hot_of(self), hot_of(other), &grown_bytes)) return nullptr;
    return PyLong_FromLongLong(grown_bytes);
}

// frames_held(): where it waits.
PyObject* hot_frames_held(PyObject* self, PyObject*) {
    Hot* hot = hot_of(self);
    PyObject* found = PyList_New(hot->held_count);
    for (uint32_t at = 0; found && at < hot->held_count; ++at) {
        PyList_SET_ITEM(found, at, Py_NewRef(reinterpret_cast<PyObject*>(waiting_places.at(hot->held[at]))));
    }
    return found;
}

// note(depth, key, old, grown_bytes): log what a source key was; return the length of the log.
PyObject* hot_note(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("note", count, 4) || !ledger_of(hot_of(self))) return nullptr;
    const int depth = int(PyLong_AsLong(arguments[0]));
    const long long grown_bytes = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    const Py_ssize_t noted = note(hot_of(self), depth, arguments[1], arguments[2], grown_bytes);
    return noted < 0 ? nullptr : PyLong_FromSsize_t(noted);
}

// go_stale(now_s)
PyObject* hot_go_stale(PyObject* self, PyObject* now) {
    const double now_s = PyFloat_AsDouble(now);
    if (now_s == -1.0 && PyErr_Occurred()) return nullptr;
    go_stale(hot_of(self), now_s);
    Py_RETURN_NONE;
}

// settle()
PyObject* hot_settle(PyObject* self, PyObject*) {
    Hot* hot = hot_of(self);
    if (!ledger_of(hot)) return nullptr;
    if (!check_all(hot->counters && Py_TYPE(hot->counters) == counters_type, "a context has counters")) return nullptr;
    settle(hot);
    Py_RETURN_NONE;
}

// gain_rows(count, own_bytes)
PyObject* hot_gain_rows(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("gain_rows", count, 2) || !ledger_of(hot_of(self))) return nullptr;
    const long long gained = PyLong_AsLongLong(arguments[0]), own_bytes = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    gain_rows(hot_of(self), gained, own_bytes);
    Py_RETURN_NONE;
}

// lose_row()
PyObject* hot_lose_row(PyObject* self, PyObject*) {
    if (!ledger_of(hot_of(self))) return nullptr;
    if (!check_all(is_rows(hot_of(self)->rows), "a context has rows")) return nullptr;
    lose_row(hot_of(self));
    Py_RETURN_NONE;
}

PyMethodDef hot_methods[] = {
    {"lose_row", hot_lose_row, METH_NOARGS, "Remove a row from the ledger."},
    {"note", as_function(hot_note), METH_FASTCALL, "Log what a source key was; return the length of the log."},
    {"go_stale", hot_go_stale, METH_O, "Fresh to stale."},
    {"settle", hot_settle, METH_NOARGS, "Stale to fresh: the log has been applied."},
    {"gain_rows", as_function(hot_gain_rows), METH_FASTCALL, "Enter rows into the ledger."},
    {"let_go", hot_let_go, METH_NOARGS, "Wait nowhere."},
    {"hand_over", hot_hand_over, METH_O, "Let another context wait where this one does."},
    {"frames_held", hot_frames_held, METH_NOARGS, "Return where it waits."},
    {nullptr, nullptr, 0, nullptr},
};

#define HOT(name, type, flags) {#name, type, offsetof(Hot, name), flags, nullptr}
PyMemberDef hot_members[] = {
    HOT(rows, T_OBJECT_EX, 0),     HOT(prefix, T_OBJECT_EX, 0),
    HOT(lower, T_OBJECT_EX, 0),    HOT(upper, T_OBJECT_EX, 0),
    HOT(end, T_OBJECT_EX, 0),      HOT(first, T_OBJECT_EX, 0),
    HOT(last, T_OBJECT_EX, 0),     HOT(counters, T_OBJECT_EX, 0),
    HOT(ledger, T_OBJECT_EX, 0),   HOT(kernel, T_OBJECT, 0),
    HOT(expires_s, T_DOUBLE, 0),   HOT(row_bytes, T_LONGLONG, 0),
    HOT(log_bytes, T_LONGLONG, 0), HOT(stale_since_s, T_DOUBLE, 0),
    HOT(is_fresh, T_BOOL, 0),      HOT(ready_until_s, T_DOUBLE, 0),
    HOT(last_used, T_LONGLONG, 0), HOT(hits, T_LONGLONG, 0),
    HOT(is_whole, T_BOOL, 0),      HOT(held_count, T_UINT, READONLY),
    HOT(is_capped, T_BOOL, 0),     HOT(room, T_UINT, 0),
    HOT(room_over, T_UINT, 0),     {nullptr, 0, 0, 0, nullptr},
};
#undef HOT

// A dictionary or a list that is made when it is asked for, as most contexts never have anything in it.
struct Lazy {
    Py_ssize_t offset;
    bool is_list;
};

PyObject*& lazy_at(PyObject* self, const void* lazy) {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + static_cast<const Lazy*>(lazy)->offset);
}

PyObject* get_lazy(PyObject* self, void* lazy) {
    PyObject*& held = lazy_at(self, lazy);
    if (!held) held = static_cast<const Lazy*>(lazy)->is_list ? PyList_New(0) : PyDict_New();
    return Py_XNewRef(held);
}

int set_lazy(PyObject* self, PyObject* value, void* lazy) {
    const bool is_list = static_cast<const Lazy*>(lazy)->is_list;
    if (!value || !(is_list ? PyList_CheckExact(value) : PyDict_CheckExact(value))) {
        PyErr_SetString(PyExc_TypeError, is_list ? "it is a list" : "it is a dictionary");
        return -1;
    }
    Py_XSETREF(lazy_at(self, lazy), Py_NewRef(value));
    return 0;
}

// Whether there is anything in it, for which it is not made.
PyObject* has_lazy(PyObject* self, void* lazy) {
    PyObject* held = lazy_at(self, lazy);
    const bool is_list = static_cast<const Lazy*>(lazy)->is_list;
    return PyBool_FromLong(held && (is_list ? PyList_GET_SIZE(held) : PyDict_GET_SIZE(held)));
}

Lazy lazy_log = {offsetof(Hot, log), false}, lazy_dependants = {offsetof(Hot, dependants), false},
     lazy_upstreams = {offsetof(Hot, upstreams), false}, lazy_states = {offsetof(Hot, aggregate_states), false},
     lazy_updaters = {offsetof(Hot, updaters), true};

PyGetSetDef hot_getters[] = {
    {"log", get_lazy, set_lazy, "Changes that are not applied yet.", &lazy_log},
    {"dependants", get_lazy, set_lazy, "The contexts that were computed from this one.", &lazy_dependants},
    {"has_dependants", has_lazy, nullptr, "Whether there are any.", &lazy_dependants},
    {"upstreams", get_lazy, set_lazy, "The contexts from which this one was computed.", &lazy_upstreams},
    {"has_upstreams", has_lazy, nullptr, "Whether there are any.", &lazy_upstreams},
    {"aggregate_states", get_lazy, set_lazy, "States of aggregates by tail.", &lazy_states},
    {"updaters", get_lazy, set_lazy, "Where it waits, beside native frames.", &lazy_updaters},
    {"has_updaters", has_lazy, nullptr, "Whether there are any.", &lazy_updaters},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot hot_slots[] = {
    {Py_tp_doc, const_cast<char*>("The hot part of a context.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(hot_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(hot_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(hot_clear)},
    {Py_tp_methods, hot_methods},
    {Py_tp_members, hot_members},
    {Py_tp_getset, hot_getters},
    {0, nullptr},
};

PyType_Spec hot_spec = {"pequod.native._hot.Hot", sizeof(Hot), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, hot_slots};

// Of a record of numbers: it can be in no cycle by itself.
void record_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

#define NUMBER(record, name) {#name, T_LONGLONG, offsetof(record, name), 0, nullptr}
PyMemberDef counters_members[] = {
    NUMBER(Counters, hits),        NUMBER(Counters, computed_ranges), NUMBER(Counters, rows_computed),
    NUMBER(Counters, log_applied), NUMBER(Counters, invalidations),   {nullptr, 0, 0, 0, nullptr},
};
PyMemberDef ledger_members[] = {
    NUMBER(HotLedger, entry_count), NUMBER(HotLedger, entry_count_max), NUMBER(HotLedger, updater_bytes),
    NUMBER(HotLedger, log_bytes),   NUMBER(HotLedger, weigh_at),        NUMBER(HotLedger, row_bytes),
    NUMBER(HotLedger, index_bytes), NUMBER(HotLedger, index_count),     {nullptr, 0, 0, 0, nullptr},
};
PyMemberDef numbers_members[] = {NUMBER(Numbers, number), {nullptr, 0, 0, 0, nullptr}};
#undef NUMBER

HotLedger* ledger_at(PyObject* self) { return reinterpret_cast<HotLedger*>(self); }

// A method of the ledger that takes a number, or two.
template <void (*change)(HotLedger*, long long)>
PyObject* ledger_one(PyObject* self, PyObject* argument) {
    const long long number = PyLong_AsLongLong(argument);
    if (number == -1 && PyErr_Occurred()) return nullptr;
    change(ledger_at(self), number);
    Py_RETURN_NONE;
}

template <void (*change)(HotLedger*, long long, long long)>
PyObject* ledger_two(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("a change of the ledger", count, 2)) return nullptr;
    const long long first = PyLong_AsLongLong(arguments[0]), second = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred()) return nullptr;
    change(ledger_at(self), first, second);
    Py_RETURN_NONE;
}

PyMethodDef ledger_methods[] = {
    {"change_rows", as_function(ledger_two<change_rows>), METH_FASTCALL, "Note that computed rows came or went."},
    {"fan_out", as_function(ledger_two<fan_out>), METH_FASTCALL, "Note that a write made or removed computed rows."},
    {"change_logs", ledger_one<change_logs>, METH_O, "Note that logs grew or shrank."},
    {"change_indexes", as_function(ledger_two<change_indexes>), METH_FASTCALL, "Note that indexes came, went or grew."},
    {"change_updaters", ledger_one<change_updaters>, METH_O, "Note that updaters came or went."},
    {nullptr, nullptr, 0, nullptr},
};

// use_sizes(entry, tail, log_entry, table, group, row): count these from now on.
PyObject* use_sizes(PyObject*, PyObject* arguments) {
    Sizes given;
    if (!PyArg_ParseTuple(arguments, "LLLLLL", &given.entry, &given.tail, &given.log_entry, &given.table, &given.group,
                          &given.row)) {
        return nullptr;
    }
    if (!check_all(given.entry > 0, "an entry has a size")) return nullptr;
    sizes = given;
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"use_sizes", use_sizes, METH_VARARGS, "Set what the ledger counts for what it has."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject* make_record(const char* name, size_t size, PyMemberDef* members, PyMethodDef* methods, unsigned flags) {
    PyType_Slot slots[] = {
        {Py_tp_methods, methods},
        {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
        {Py_tp_dealloc, reinterpret_cast<void*>(record_dealloc)},
        {Py_tp_members, members},
        {0, nullptr},
    };
    PyType_Spec spec = {name, int(size), 0, static_cast<unsigned int>(Py_TPFLAGS_DEFAULT) | flags, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

bool add_type(PyObject* module, const char* name, PyTypeObject* type) {
    return type && PyModule_AddObjectRef(module, name, reinterpret_cast<PyObject*>(type)) == 0;
}

}  // namespace

int add_context_types(PyObject* module) {
    counters_type = make_record("pequod.native._hot.Counters", sizeof(Counters), counters_members, no_methods, 0);
    ledger_type = make_record("pequod.native._hot.HotLedger", sizeof(HotLedger), ledger_members, ledger_methods,
                              Py_TPFLAGS_BASETYPE);
    numbers_type =
        make_record("pequod.native._hot.Numbers", sizeof(Numbers), numbers_members, no_methods, Py_TPFLAGS_BASETYPE);
    hot_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&hot_spec));
    const bool is_done = add_type(module, "Counters", counters_type) && add_type(module, "HotLedger", ledger_type) &&
                         add_type(module, "Numbers", numbers_type) && add_type(module, "Hot", hot_type);
    return is_done ? PyModule_AddFunctions(module, functions) : -1;
}

}  // namespace pequod
