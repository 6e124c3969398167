#include "frames.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* waiting_type = nullptr;
PyTypeObject* frames_type = nullptr;
Register<Hot> waiting_contexts;
Register<Waiting> waiting_places;

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
    if (made) made->number = waiting_places.enter(made);
    FramePlace* place = made && made->number ? frames->table.room_for(key.hash, key.bytes) : nullptr;
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

// Where the number of a context stands among those who wait, or would.
uint32_t stand_of(const Waiting* waiting, uint32_t number) {
    uint32_t low = 0, high = waiting->count;
    // Of contexts that came in turn the latest has the highest number.
    if (high && waiting->numbers[high - 1] < number) return high;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (waiting->numbers[middle] < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool does_wait(const Waiting* waiting, uint32_t number) {
    const uint32_t at = stand_of(waiting, number);
    return number && at < waiting->count && waiting->numbers[at] == number;
}

// Let a context wait that has a number, and does not wait here.
bool wait_at(Waiting* waiting, Hot* hot) {
    if (!make_room(&waiting->numbers, waiting->count, &waiting->room) ||
        !make_room(&hot->held, hot->held_count, &hot->held_room)) {
        return false;
    }
    Py_INCREF(waiting);
    const uint32_t at = stand_of(waiting, hot->number);
    std::memmove(waiting->numbers + at + 1, waiting->numbers + at, (waiting->count - at) * sizeof(uint32_t));
    waiting->numbers[at] = hot->number;
    ++waiting->count;
    hot->held[hot->held_count++] = waiting->number;
    return true;
}

// Take a context out of those who wait; its own list is the caller's to change. Return by how many bytes that changes
// what the ledger has. The reference to those who wait is given up.
long long take_out(Waiting* waiting, uint32_t number) {
    const uint32_t at = stand_of(waiting, number);
    --waiting->count;
    std::memmove(waiting->numbers + at, waiting->numbers + at + 1, (waiting->count - at) * sizeof(uint32_t));
    long long grown_bytes = waiting->frames ? -waiting->frames->hold_bytes : 0;
    if (!waiting->count) grown_bytes += discard(waiting);
    Py_DECREF(waiting);
    return grown_bytes;
}

// Let a context no longer wait at one frame; return by how many bytes that changes what the ledger has.
long long leave(Waiting* waiting, Hot* hot) {
    uint32_t at = hot->held_count - 1;
    while (hot->held[at] != waiting->number) --at;
    hot->held[at] = hot->held[--hot->held_count];
    return take_out(waiting, hot->number);
}

// Give a context a number if it has none.
bool enter(Hot* hot) {
    if (!hot->number) hot->number = waiting_contexts.enter(hot);
    return hot->number;
}

}  // namespace

Waiting* find_frame(const Frames* frames, Piece key) {
    return find(frames, hash_of(key), key);
}

long long let_go(Hot* hot) {
    long long grown_bytes = 0;
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (at + 8 < hot->held_count) __builtin_prefetch(waiting_places.at(hot->held[at + 8]));
        grown_bytes += take_out(waiting_places.at(hot->held[at]), hot->number);
    }
    PyMem_Free(hot->held);
    hot->held = nullptr;
    hot->held_count = hot->held_room = 0;
    if (hot->number) waiting_contexts.leave(std::exchange(hot->number, 0));
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
        if (guessed[at] && guessed[at]->count) __builtin_prefetch(guessed[at]->numbers + guessed[at]->count - 1, 1);
    }
}

// Whether a context waits nowhere among frames, so that only a key that occurs twice could be met again.
bool is_new(const Frames* frames, const Hot* hot) {
    if (hot->held_count > 4) return false;
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (waiting_places.at(hot->held[at])->frames == frames) return false;
    }
    return true;
}

}  // namespace

bool reserve_held(Hot* hot, size_t count) {
    if (hot->held_count || count <= hot->held_room) return true;
    uint32_t* grown = count < UINT32_MAX / 2
                          ? static_cast<uint32_t*>(PyMem_Realloc(hot->held, count * sizeof(uint32_t)))
                          : nullptr;
    if (!grown) {
        PyErr_NoMemory();
        return false;
    }
    hot->held = grown;
    hot->held_room = uint32_t(count);
    return true;
}

bool wait_at_all(Frames* frames, const FrameKey* keys, size_t count, Hot* hot, long long* grown_bytes) {
    // Of a new context that waits at ascending keys it need not be asked whether it waits there already.
    const bool may_skip = is_new(frames, hot);
    bool is_ascending = true;
    if (!enter(hot) || !reserve_held(hot, count)) return false;
    for (size_t start = 0; start < count; start += AHEAD) {
        const size_t stop = count - start < AHEAD ? count : start + AHEAD;
        look_ahead(frames, keys + start, stop - start);
        for (size_t at = start; at < stop; ++at) {
            is_ascending = is_ascending && (!at || compare(keys[at - 1].bytes, keys[at].bytes) < 0);
            Waiting* waiting = make_frame(frames, keys[at], grown_bytes);
            if (!waiting) return false;
            if (!(may_skip && is_ascending) && does_wait(waiting, hot->number)) continue;
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
    if (from->held_count && !enter(to)) return false;
    while (from->held_count) {
        Waiting* waiting = waiting_places.at(from->held[from->held_count - 1]);
        if (!does_wait(waiting, to->number)) {
            if (!wait_at(waiting, to)) return false;
            *grown_bytes += waiting->frames ? waiting->frames->hold_bytes : 0;
        }
        *grown_bytes += leave(waiting, from);
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
