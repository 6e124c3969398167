#include "contexts.hpp"

#include "frames.hpp"
#include "tables.hpp"

#include <structmember.h>

#include <cstddef>
#include <utility>

namespace pequod {

PyTypeObject* counters_type = nullptr;
PyTypeObject* ledger_type = nullptr;
PyTypeObject* numbers_type = nullptr;
PyTypeObject* hot_type = nullptr;
PyTypeObject* ends_type = nullptr;

int covers(Hot* hot, PyObject* tail) {
    const Piece wanted = piece_of(tail);
    if (compare(wanted, piece_of(hot->lower)) < 0) return 0;
    if (hot->upper != Py_None && compare(wanted, piece_of(hot->upper)) >= 0) return 0;
    if (hot->is_whole) return 1;
    // Several ranges are Python's to look through.
    PyObject* context = reinterpret_cast<PyObject*>(hot);
    Py_INCREF(context);
    PyObject* found = PyObject_CallMethod(context, "covers", "O", tail);
    Py_DECREF(context);
    const int is_covered = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return is_covered;
}

namespace {

Ends* ends_of(PyObject* self) { return reinterpret_cast<Ends*>(self); }

// The place of a key, or the free one where it would be.
size_t place_of(const Ends* ends, size_t hash, Piece key) {
    size_t at = hash & (ends->place_count - 1);
    while (ends->places[at].context) {
        const End& end = ends->places[at];
        if (end.hash == hash && is_equal(piece_of(end.key), key)) break;
        at = (at + 1) & (ends->place_count - 1);
    }
    return at;
}

bool resize(Ends* ends, size_t place_count) {
    End* places = static_cast<End*>(PyMem_Calloc(place_count, sizeof(End)));
    if (!places) {
        PyErr_NoMemory();
        return false;
    }
    End* former = std::exchange(ends->places, places);
    const size_t former_count = std::exchange(ends->place_count, place_count);
    for (size_t at = 0; at < former_count; ++at) {
        if (former[at].context) places[place_of(ends, former[at].hash, piece_of(former[at].key))] = former[at];
    }
    PyMem_Free(former);
    return true;
}

void clear(Ends* ends) {
    End* places = std::exchange(ends->places, nullptr);
    const size_t place_count = std::exchange(ends->place_count, 0);
    ends->size = 0;
    for (size_t at = 0; at < place_count; ++at) {
        Py_XDECREF(places[at].key);
        Py_XDECREF(places[at].context);
        Py_XDECREF(places[at].table);
    }
    PyMem_Free(places);
}

}  // namespace

const End* Ends::find(size_t hash, Piece key) const {
    if (!size) return nullptr;
    const End& end = places[place_of(this, hash, key)];
    return end.context ? &end : nullptr;
}

namespace {

PyObject* ends_get(PyObject* self, PyObject* last) {
    if (!PyBytes_Check(last)) Py_RETURN_NONE;
    const End* found = ends_of(self)->find(hash_of(piece_of(last)), piece_of(last));
    return Py_NewRef(found ? found->context : Py_None);
}

PyObject* ends_put(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Ends* ends = ends_of(self);
    if (count != 3 || !PyBytes_CheckExact(arguments[0]) || !is_hot(arguments[1]) ||
        !is_table(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "put takes bytes, a context and a table");
        return nullptr;
    }
    if (2 * (ends->size + 1) > ends->place_count && !resize(ends, ends->place_count ? 2 * ends->place_count : 8)) {
        return nullptr;
    }
    const size_t hash = hash_of(piece_of(arguments[0]));
    End& end = ends->places[place_of(ends, hash, piece_of(arguments[0]))];
    const End former = end;
    end = {hash, Py_NewRef(arguments[0]), Py_NewRef(arguments[1]), Py_NewRef(arguments[2])};
    ends->size += !former.context;
    Py_XDECREF(former.key);
    Py_XDECREF(former.context);
    Py_XDECREF(former.table);
    Py_RETURN_NONE;
}

PyObject* ends_remove(PyObject* self, PyObject* last) {
    Ends* ends = ends_of(self);
    if (!PyBytes_Check(last) || !ends->size) Py_RETURN_NONE;
    const size_t mask = ends->place_count - 1;
    size_t free = place_of(ends, hash_of(piece_of(last)), piece_of(last));
    const End gone = ends->places[free];
    if (!gone.context) Py_RETURN_NONE;
    // What stands behind moves up as far as it may, so that no look-up meets a gap before its key.
    for (size_t at = (free + 1) & mask; ends->places[at].context; at = (at + 1) & mask) {
        const size_t home = ends->places[at].hash & mask;
        if (((at - home) & mask) >= ((at - free) & mask)) {
            ends->places[free] = ends->places[at];
            free = at;
        }
    }
    ends->places[free] = {0, nullptr, nullptr, nullptr};
    --ends->size;
    if (!ends->size) {
        clear(ends);
    } else if (ends->place_count > 8 && 8 * ends->size < ends->place_count && !resize(ends, ends->place_count / 2)) {
        PyErr_Clear();
    }
    Py_DECREF(gone.key);
    Py_DECREF(gone.context);
    Py_DECREF(gone.table);
    Py_RETURN_NONE;
}

Py_ssize_t ends_length(PyObject* self) { return Py_ssize_t(ends_of(self)->size); }

int ends_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    for (size_t at = 0; at < ends_of(self)->place_count; ++at) {
        Py_VISIT(ends_of(self)->places[at].context);
        Py_VISIT(ends_of(self)->places[at].table);
    }
    return 0;
}

int ends_clear(PyObject* self) {
    clear(ends_of(self));
    return 0;
}

void ends_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(ends_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef ends_methods[] = {
    {"get", ends_get, METH_O, "Return the context of an end, None if there is none."},
    {"put", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(ends_put)), METH_FASTCALL,
     "Set the context of an end."},
    {"remove", ends_remove, METH_O, "Take an end out; nothing changes if it is not there."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot ends_slots[] = {
    {Py_tp_doc, const_cast<char*>("Contexts by the ends of reads that they answered.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(ends_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(ends_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(ends_clear)},
    {Py_tp_methods, ends_methods},
    {Py_sq_length, reinterpret_cast<void*>(ends_length)},
    {0, nullptr},
};

PyType_Spec ends_spec = {"pequod.engine._hot.Ends", sizeof(Ends), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, ends_slots};

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
        PyList_SET_ITEM(found, at, Py_NewRef(reinterpret_cast<PyObject*>(hot->held[at].waiting)));
    }
    return found;
}

PyMethodDef hot_methods[] = {
    {"let_go", hot_let_go, METH_NOARGS, "Wait nowhere."},
    {"hand_over", hot_hand_over, METH_O, "Let another context wait where this one does."},
    {"frames_held", hot_frames_held, METH_NOARGS, "Return where it waits."},
    {nullptr, nullptr, 0, nullptr},
};

#define HOT(name, type, flags) {#name, type, offsetof(Hot, name), flags, nullptr}
PyMemberDef hot_members[] = {
    HOT(rows, T_OBJECT_EX, 0),
    HOT(prefix, T_OBJECT_EX, 0),
    HOT(lower, T_OBJECT_EX, 0),
    HOT(upper, T_OBJECT_EX, 0),
    HOT(end, T_OBJECT_EX, 0),
    HOT(first, T_OBJECT_EX, 0),
    HOT(last, T_OBJECT_EX, 0),
    HOT(counters, T_OBJECT_EX, 0),
    HOT(log, T_OBJECT_EX, 0),
    HOT(dependants, T_OBJECT_EX, 0),
    HOT(kernel, T_OBJECT, 0),
    HOT(expires_s, T_DOUBLE, 0),
    HOT(row_bytes, T_LONGLONG, 0),
    HOT(log_bytes, T_LONGLONG, 0),
    HOT(stale_since_s, T_DOUBLE, 0),
    HOT(is_fresh, T_BOOL, 0),
    HOT(ready_until_s, T_DOUBLE, 0),
    HOT(last_used, T_LONGLONG, 0),
    HOT(is_whole, T_BOOL, 0),
    HOT(held_count, T_UINT, READONLY),
    {nullptr, 0, 0, 0, nullptr},
};
#undef HOT

PyType_Slot hot_slots[] = {
    {Py_tp_doc, const_cast<char*>("The hot part of a context.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(hot_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(hot_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(hot_clear)},
    {Py_tp_methods, hot_methods},
    {Py_tp_members, hot_members},
    {0, nullptr},
};

PyType_Spec hot_spec = {"pequod.engine._hot.Hot", sizeof(Hot), 0,
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
    NUMBER(HotLedger, entry_count),   NUMBER(HotLedger, entry_count_max), NUMBER(HotLedger, updater_bytes),
    NUMBER(HotLedger, log_bytes),     NUMBER(HotLedger, weigh_at),        NUMBER(HotLedger, row_bytes), {nullptr, 0, 0, 0, nullptr},
};
PyMemberDef numbers_members[] = {NUMBER(Numbers, number), {nullptr, 0, 0, 0, nullptr}};
#undef NUMBER

PyTypeObject* make_record(const char* name, size_t size, PyMemberDef* members, unsigned int flags) {
    PyType_Slot slots[] = {
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
    counters_type = make_record("pequod.engine._hot.Counters", sizeof(Counters), counters_members, 0);
    ledger_type = make_record("pequod.engine._hot.HotLedger", sizeof(HotLedger), ledger_members, Py_TPFLAGS_BASETYPE);
    numbers_type = make_record("pequod.engine._hot.Numbers", sizeof(Numbers), numbers_members, Py_TPFLAGS_BASETYPE);
    hot_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&hot_spec));
    ends_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&ends_spec));
    const bool is_done = add_type(module, "Counters", counters_type) && add_type(module, "HotLedger", ledger_type) &&
                         add_type(module, "Numbers", numbers_type) && add_type(module, "Hot", hot_type) &&
                         add_type(module, "Ends", ends_type);
    return is_done ? 0 : -1;
}

}  // namespace pequod
