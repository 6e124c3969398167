#include "frames.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* waiting_type = nullptr;
PyTypeObject* frames_type = nullptr;

namespace {

// How many frames are looked up ahead, so that what they lie in is fetched meanwhile.
constexpr size_t AHEAD = 32;

Frames* frames_of(PyObject* self) { return reinterpret_cast<Frames*>(self); }
Waiting* waiting_of(PyObject* self) { return reinterpret_cast<Waiting*>(self); }

template <typename Item>
bool make_room(Item** items, uint32_t count, uint32_t* room) {
    if (count < *room) return true;
    if (count >= UINT32_MAX / 2) {
        PyErr_NoMemory();
        return false;
    }
    const uint32_t roomy = count + (count >> 3) + 4;
    Item* grown = static_cast<Item*>(PyMem_Realloc(*items, size_t(roomy) * sizeof(Item)));
    if (!grown) {
        PyErr_NoMemory();
        return false;
    }
    *items = grown;
    *room = roomy;
    return true;
}

Waiting* find(const Frames* frames, size_t hash, Piece key) {
    const FramePlace* place = frames->table.find(hash, key);
    return place ? place->waiting : nullptr;
}

// The frame of a key, made if it is new; null: an error is set.
Waiting* make_frame(Frames* frames, const FrameKey& key, long long* grown_bytes) {
    if (Waiting* found = find(frames, key.hash, key.bytes)) return found;
    Waiting* made = waiting_of(waiting_type->tp_alloc(waiting_type, Py_ssize_t(key.bytes.size)));
    FramePlace* place = made ? frames->table.room_for(key.hash, key.bytes) : nullptr;
    if (!place) {
        Py_XDECREF(made);
        return nullptr;
    }
    std::memcpy(made->key_start, key.bytes.start, key.bytes.size);
    made->frames = frames;
    *place = {key.hash, made};
    *grown_bytes += frames->frame_bytes;
    return made;
}

// Take out a frame at which nobody waits; return by how many bytes that changes what the ledger has.
long long discard(Waiting* waiting) {
    Frames* frames = waiting->frames;
    if (!frames) return 0;
    frames->table.free(frames->table.find(hash_of(waiting->key()), waiting->key()));
    waiting->frames = nullptr;
    const long long gone_bytes = frames->frame_bytes + waiting->tail_bytes;
    Py_DECREF(waiting);
    return -gone_bytes;
}

// Where a context stands among those who wait, or -1. The shorter of both lists is looked through.
int64_t hold_of(const Waiting* waiting, const Hot* hot) {
    if (waiting->count < hot->held_count) {
        for (uint32_t at = 0; at < waiting->count; ++at) {
            if (waiting->holds[at].context == hot) return at;
        }
    } else {
        for (uint32_t at = 0; at < hot->held_count; ++at) {
            if (hot->held[at].waiting == waiting) return hot->held[at].at;
        }
    }
    return -1;
}

bool wait_at(Waiting* waiting, Hot* hot) {
    if (!make_room(&waiting->holds, waiting->count, &waiting->room) ||
        !make_room(&hot->held, hot->held_count, &hot->held_room)) {
        return false;
    }
    Py_INCREF(waiting);
    waiting->holds[waiting->count] = {hot, hot->held_count};
    hot->held[hot->held_count++] = {waiting, waiting->count++};
    return true;
}

// Take a context out of those who wait; its own list is the caller's to change.
void take_out_hold(Waiting* waiting, uint32_t at) {
    waiting->holds[at] = waiting->holds[--waiting->count];
    if (at < waiting->count) {
        const Hold& moved = waiting->holds[at];
        moved.context->held[moved.at].at = at;
    }
}

// Let a context no longer wait at one frame; return by how many bytes that changes what the ledger has.
long long leave(Waiting* waiting, Hot* hot, uint32_t at) {
    const uint32_t mine = waiting->holds[at].at;
    take_out_hold(waiting, at);
    hot->held[mine] = hot->held[--hot->held_count];
    if (mine < hot->held_count) {
        const Held& moved = hot->held[mine];
        moved.waiting->holds[moved.at].at = mine;
    }
    long long grown_bytes = waiting->frames ? -waiting->frames->hold_bytes : 0;
    if (!waiting->count) grown_bytes += discard(waiting);
    Py_DECREF(waiting);
    return grown_bytes;
}

}  // namespace

Waiting* find_frame(const Frames* frames, Piece key) {
    return find(frames, hash_of(key), key);
}

long long let_go(Hot* hot) {
    long long grown_bytes = 0;
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (at + 8 < hot->held_count) __builtin_prefetch(hot->held[at + 8].waiting);
        Waiting* waiting = hot->held[at].waiting;
        take_out_hold(waiting, hot->held[at].at);
        if (waiting->frames) grown_bytes -= waiting->frames->hold_bytes;
        if (!waiting->count) grown_bytes += discard(waiting);
        Py_DECREF(waiting);
    }
    PyMem_Free(hot->held);
    hot->held = nullptr;
    hot->held_count = hot->held_room = 0;
    return grown_bytes;
}

namespace {

// Fetch what some look-ups will meet. What is guessed here is used for nothing else.
void look_ahead(const Frames* frames, const FrameKey* keys, size_t count) {
    const Waiting* guessed[AHEAD];
    for (size_t at = 0; at < count; ++at) __builtin_prefetch(frames->table.home(keys[at].hash));
    for (size_t at = 0; at < count; ++at) {
        const FramePlace* place = frames->table.guess(keys[at].hash);
        guessed[at] = place ? place->waiting : nullptr;
        __builtin_prefetch(guessed[at], 1);
        __builtin_prefetch(reinterpret_cast<const char*>(guessed[at]) + offsetof(Waiting, key_start) + keys[at].bytes.size - 1);
    }
    for (size_t at = 0; at < count; ++at) {
        if (guessed[at]) __builtin_prefetch(reinterpret_cast<char*>(guessed[at]->holds + guessed[at]->count), 1);
    }
}

// Whether a context waits nowhere among frames, so that only a key that occurs twice could be met again.
bool is_new(const Frames* frames, const Hot* hot) {
    if (hot->held_count > 4) return false;
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (hot->held[at].waiting->frames == frames) return false;
    }
    return true;
}

}  // namespace

bool wait_at_all(Frames* frames, const FrameKey* keys, size_t count, Hot* hot, long long* grown_bytes) {
    // Of a new context that waits at ascending keys it need not be asked whether it waits there already.
    const bool may_skip = is_new(frames, hot);
    bool is_ascending = true;
    for (size_t start = 0; start < count; start += AHEAD) {
        const size_t stop = count - start < AHEAD ? count : start + AHEAD;
        look_ahead(frames, keys + start, stop - start);
        for (size_t at = start; at < stop; ++at) {
            is_ascending = is_ascending && (!at || compare(keys[at - 1].bytes, keys[at].bytes) < 0);
            Waiting* waiting = make_frame(frames, keys[at], grown_bytes);
            if (!waiting) return false;
            if (!(may_skip && is_ascending) && hold_of(waiting, hot) >= 0) continue;
            if (!wait_at(waiting, hot)) {
                if (!waiting->count) *grown_bytes += discard(waiting);
                return false;
            }
            *grown_bytes += frames->hold_bytes;
        }
    }
    return true;
}

bool hand_over(Hot* from, Hot* to, long long* grown_bytes) {
    while (from->held_count) {
        const Held last = from->held[from->held_count - 1];
        if (hold_of(last.waiting, to) < 0) {
            if (!wait_at(last.waiting, to)) return false;
            *grown_bytes += last.waiting->frames ? last.waiting->frames->hold_bytes : 0;
        }
        *grown_bytes += leave(last.waiting, from, from->held[from->held_count - 1].at);
    }
    return true;
}

namespace {

bool is_frame_key(PyObject* key) {
    if (PyBytes_Check(key)) return true;
    PyErr_SetString(PyExc_TypeError, "frame keys are bytes");
    return false;
}

// get(key): who waits at a frame key, or None.
PyObject* frames_get(PyObject* self, PyObject* key) {
    if (!is_frame_key(key)) return nullptr;
    Waiting* found = find(frames_of(self), hash_of(piece_of(key)), piece_of(key));
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
    Waiting* waiting = find(frames_of(self), hash_of(piece_of(arguments[0])), piece_of(arguments[0]));
    const int64_t at = waiting ? hold_of(waiting, hot_of(arguments[1])) : -1;
    return PyLong_FromLongLong(at < 0 ? 0 : leave(waiting, hot_of(arguments[1]), uint32_t(at)));
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

Py_ssize_t frames_length(PyObject* self) { return Py_ssize_t(frames_of(self)->table.size); }

PyObject* frames_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    long long frame_bytes = 0, hold_bytes = 0;
    static const char* keywords[] = {"frame_bytes", "hold_bytes", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "LL", const_cast<char**>(keywords), &frame_bytes, &hold_bytes)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
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
    type->tp_free(self);
    Py_DECREF(type);
}

// contexts: a new dictionary of those who wait, as `Updaters.contexts`; for what is not hot.
PyObject* waiting_contexts(PyObject* self, void*) {
    Waiting* waiting = waiting_of(self);
    PyObject* found = PyDict_New();
    for (uint32_t at = 0; found && at < waiting->count; ++at) {
        if (PyDict_SetItem(found, reinterpret_cast<PyObject*>(waiting->holds[at].context), Py_None) < 0) Py_CLEAR(found);
    }
    return found;
}

Py_ssize_t waiting_length(PyObject* self) { return waiting_of(self)->count; }

void waiting_dealloc(PyObject* self) {
    Waiting* waiting = waiting_of(self);
    PyTypeObject* type = Py_TYPE(self);
    // Nobody waits here: each context that does holds a reference.
    PyMem_Free(waiting->holds);
    type->tp_free(self);
    Py_DECREF(type);
}

// _check(): that both sides know each other's place.
PyObject* waiting_check(PyObject* self, PyObject*) {
    Waiting* waiting = waiting_of(self);
    for (uint32_t at = 0; at < waiting->count; ++at) {
        const Hold& hold = waiting->holds[at];
        if (hold.at >= hold.context->held_count || hold.context->held[hold.at].waiting != waiting ||
            hold.context->held[hold.at].at != at) {
            PyErr_SetString(PyExc_AssertionError, "each side knows its place in the other's list");
            return nullptr;
        }
    }
    Py_RETURN_NONE;
}

template <typename Function>
PyCFunction as_method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

PyMethodDef frames_methods[] = {
    {"get", frames_get, METH_O, "Return who waits at a frame key, or None."},
    {"add_all", as_method(frames_add_all), METH_FASTCALL, "Let a context wait at frames."},
    {"remove", as_method(frames_remove), METH_FASTCALL, "Let a context no longer wait at a frame."},
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

PyType_Spec frames_spec = {"pequod.engine._hot.Frames", sizeof(Frames), 0,
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
    {"contexts", waiting_contexts, nullptr, "Those who wait, with None each.", nullptr},
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

PyType_Spec waiting_spec = {"pequod.engine._hot.Waiting", int(offsetof(Waiting, key_start)), 1,
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
