// The Python types of frames, and of those who wait at one.
#include "frames.hpp"

#include <structmember.h>

#include <cstddef>

#include "arguments.hpp"

namespace pequod {

PyTypeObject* waiting_type = nullptr;
PyTypeObject* frames_type = nullptr;

namespace {

bool is_frame_key(PyObject* key) {
    if (PyBytes_Check(key)) return true;
    PyErr_SetString(PyExc_TypeError, "frame keys are bytes");
    return false;
}

// get(key): who waits at a frame key, or None.
PyObject* frames_get(PyObject* self, PyObject* key) {
    if (!is_frame_key(key)) return nullptr;
    Waiting* found = find_frame(frames_of(self), piece_of(key));
    return Py_NewRef(found ? reinterpret_cast<PyObject*>(found) : Py_None);
}

// add_all(keys, context): let a context wait at frames; return by how many bytes that changes what the ledger has.
PyObject* frames_add_all(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !PyList_CheckExact(arguments[0]) || !is_hot(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "add_all takes a list of frame keys, and a context");
        return nullptr;
    }
    const size_t size = size_t(PyList_GET_SIZE(arguments[0]));
    FrameKey* keys = static_cast<FrameKey*>(PyMem_Malloc((size ? size : 1) * sizeof(FrameKey)));
    if (!keys) return PyErr_NoMemory();
    bool is_done = true;
    for (size_t at = 0; is_done && at < size; ++at) {
        PyObject* key = PyList_GET_ITEM(arguments[0], Py_ssize_t(at));
        is_done = is_frame_key(key);
        if (is_done) keys[at] = {piece_of(key), hash_of(piece_of(key))};
    }
    long long grown_bytes = 0;
    is_done = is_done && wait_at_all(frames_of(self), keys, size, hot_of(arguments[1]), &grown_bytes);
    PyMem_Free(keys);
    return is_done ? PyLong_FromLongLong(grown_bytes) : nullptr;
}

// remove(key, context): let it no longer wait at a frame; return by how many bytes that changes what the ledger has.
PyObject* frames_remove(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2 || !is_hot(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "remove takes a frame key and a context");
        return nullptr;
    }
    if (!is_frame_key(arguments[0])) return nullptr;
    Waiting* waiting = find_frame(frames_of(self), piece_of(arguments[0]));
    const bool is_here = waiting && does_wait(waiting, hot_of(arguments[1])->number);
    return PyLong_FromLongLong(is_here ? leave(waiting, hot_of(arguments[1])) : 0);
}

// values(): all who wait, by frame.
PyObject* frames_values(PyObject* self, PyObject*) {
    Frames* frames = frames_of(self);
    PyObject* found = PyList_New(0);
    for (size_t at = 0; found && at < frames->table.place_count; ++at) {
        const FramePlace& place = frames->table.places[at];
        if (!place.is_free() && PyList_Append(found, reinterpret_cast<PyObject*>(place.waiting)) < 0) Py_CLEAR(found);
    }
    return found;
}

// over(first, last): those who wait at frame keys of [first, last), in order.
PyObject* frames_over(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    SortedRows* order = frames_of(self)->order;
    if (count != 2 || !order) {
        PyErr_SetString(PyExc_TypeError, "over takes two frame keys, where frames are ordered");
        return nullptr;
    }
    if (!is_frame_key(arguments[0]) || !is_frame_key(arguments[1])) return nullptr;
    Place place = lower_bound(order, piece_of(arguments[0]));
    const Place stop = lower_bound(order, piece_of(arguments[1]));
    PyObject* found = PyList_New(0);
    for (size_t left = count_between(order, place, stop); found && left; --left, ++place.at) {
        while (place.at == order->leaf(place.leaf).size) place = {place.leaf + 1, 0};
        Waiting* waiting = find_frame(frames_of(self), order->leaf(place.leaf).key(place.at));
        if (PyList_Append(found, reinterpret_cast<PyObject*>(waiting)) < 0) Py_CLEAR(found);
    }
    return found;
}

Py_ssize_t frames_length(PyObject* self) { return Py_ssize_t(frames_of(self)->table.size); }

PyObject* frames_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    long long frame_bytes = 0, hold_bytes = 0;
    int is_ordered = 0;
    static const char* keywords[] = {"frame_bytes", "hold_bytes", "is_ordered", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "LL|p", const_cast<char**>(keywords), &frame_bytes, &hold_bytes,
                                     &is_ordered)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    if (is_ordered) {
        frames_of(self)->order = reinterpret_cast<SortedRows*>(rows_type->tp_alloc(rows_type, 0));
        if (!frames_of(self)->order) {
            Py_DECREF(self);
            return nullptr;
        }
    }
    frames_of(self)->frame_bytes = frame_bytes;
    frames_of(self)->hold_bytes = hold_bytes;
    return self;
}

void frames_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    frames_of(self)->table.clear([](const FramePlace& place) {
        // Contexts may outlive the frames for a moment, and what they hold with them.
        place.waiting->frames = nullptr;
        Py_DECREF(place.waiting);
    });
    Py_XDECREF(frames_of(self)->order);
    type->tp_free(self);
    Py_DECREF(type);
}

// contexts: a new dictionary of those who wait, as `Updaters.contexts`; for what is not hot.
PyObject* waiting_contexts_of(PyObject* self, void*) {
    Waiting* waiting = waiting_of(self);
    PyObject* found = PyDict_New();
    for (uint32_t at = 0; found && at < waiting->count; ++at) {
        if (PyDict_SetItem(found, reinterpret_cast<PyObject*>(waiting->context(at)), Py_None) < 0) Py_CLEAR(found);
    }
    return found;
}

Py_ssize_t waiting_length(PyObject* self) { return waiting_of(self)->count; }

void waiting_dealloc(PyObject* self) {
    Waiting* waiting = waiting_of(self);
    PyTypeObject* type = Py_TYPE(self);
    // Nobody waits here: each context that does holds a reference.
    PyMem_Free(waiting->numbers);
    if (waiting->number) waiting_places.leave(waiting->number);
    type->tp_free(self);
    Py_DECREF(type);
}

bool does_hold(const Hot* hot, uint32_t number) {
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (hot->held[at] == number) return true;
    }
    return false;
}

// _check(): that both sides know each other, and that numbers ascend.
PyObject* waiting_check(PyObject* self, PyObject*) {
    const Waiting* waiting = waiting_of(self);
    for (uint32_t at = 0; at < waiting->count; ++at) {
        const Hot* hot = waiting->context(at);
        if (hot->number != waiting->numbers[at] || !does_hold(hot, waiting->number) ||
            (at && waiting->numbers[at - 1] >= waiting->numbers[at])) {
            PyErr_SetString(PyExc_AssertionError, "both sides know each other, and numbers ascend");
            return nullptr;
        }
    }
    Py_RETURN_NONE;
}

PyMethodDef frames_methods[] = {
    {"get", frames_get, METH_O, "Return who waits at a frame key, or None."},
    {"add_all", as_function(frames_add_all), METH_FASTCALL, "Let a context wait at frames."},
    {"remove", as_function(frames_remove), METH_FASTCALL, "Let a context no longer wait at a frame."},
    {"over", as_function(frames_over), METH_FASTCALL, "Return all who wait at frame keys of [first, last)."},
    {"values", frames_values, METH_NOARGS, "Return all who wait, by frame."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot frames_slots[] = {
    {Py_tp_doc, const_cast<char*>("Frames without extras, by frame key.")},
    {Py_tp_new, reinterpret_cast<void*>(frames_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(frames_dealloc)},
    {Py_tp_methods, frames_methods},
    {Py_sq_length, reinterpret_cast<void*>(frames_length)},
    {0, nullptr},
};

PyType_Spec frames_spec = {"pequod.native._hot.Frames", sizeof(Frames), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, frames_slots};

PyMethodDef waiting_methods[] = {
    {"_check", waiting_check, METH_NOARGS, "Check the invariants."},
    {nullptr, nullptr, 0, nullptr},
};

PyObject* waiting_key(PyObject* self, void*) {
    const Piece key = waiting_of(self)->key();
    return PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
}

PyGetSetDef waiting_getters[] = {
    {"key", waiting_key, nullptr, "The frame key.", nullptr},
    {"contexts", waiting_contexts_of, nullptr, "Those who wait, with None each.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef waiting_members[] = {
    {"tail_bytes", T_LONGLONG, offsetof(Waiting, tail_bytes), 0, "Tails that fan-outs from here made."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot waiting_slots[] = {
    {Py_tp_doc, const_cast<char*>("Who waits at one frame key.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(waiting_dealloc)},
    {Py_tp_methods, waiting_methods},
    {Py_tp_getset, waiting_getters},
    {Py_tp_members, waiting_members},
    {Py_sq_length, reinterpret_cast<void*>(waiting_length)},
    {0, nullptr},
};

PyType_Spec waiting_spec = {"pequod.native._hot.Waiting", int(offsetof(Waiting, key_start)), 1,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                            waiting_slots};

}  // namespace

int add_frame_types(PyObject* module) {
    waiting_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&waiting_spec));
    frames_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&frames_spec));
    if (!waiting_type || !frames_type) return -1;
    if (PyModule_AddObjectRef(module, "Waiting", reinterpret_cast<PyObject*>(waiting_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "Frames", reinterpret_cast<PyObject*>(frames_type));
}

}  // namespace pequod
