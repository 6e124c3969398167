#include "frames.hpp"

#include "fetch.hpp"

#include <cstddef>

namespace pequod {

Register<Hot> waiting_contexts;
Register<Waiting> waiting_places;

namespace {

// How many frames are looked up ahead, so that what they lie in is fetched meanwhile.
constexpr size_t AHEAD = 32;

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

// Note a new frame key in the order, if there is one. False: an error is set.
bool enter_key(Frames* frames, Piece key) {
    if (!frames->order) return true;
    PyObject* bytes = PyBytes_FromStringAndSize(key.start, Py_ssize_t(key.size));
    PyObject* none = PyBytes_FromStringAndSize(nullptr, 0);
    PyObject* old = nullptr;
    const bool is_done = bytes && none && put(frames->order, bytes, none, &old) != Put::FAILED;
    Py_XDECREF(bytes);
    Py_XDECREF(none);
    Py_XDECREF(old);
    return is_done;
}

// The frame of a key, made if it is new; null: an error is set.
Waiting* make_frame(Frames* frames, const FrameKey& key, long long* grown_bytes) {
    if (Waiting* found = find(frames, key.hash, key.bytes)) return found;
    Waiting* made = waiting_of(waiting_type->tp_alloc(waiting_type, Py_ssize_t(key.bytes.size)));
    if (made) made->number = waiting_places.enter(made);
    FramePlace* place = made && made->number ? frames->table.room_for(key.hash, key.bytes) : nullptr;
    if (!place || !enter_key(frames, key.bytes)) {
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
    if (frames->order) Py_XDECREF(remove(frames->order, waiting->key()));
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

// Give a context a number if it has none.
bool enter(Hot* hot) {
    if (!hot->number) hot->number = waiting_contexts.enter(hot);
    return hot->number;
}

}  // namespace

bool does_wait(const Waiting* waiting, uint32_t number) {
    const uint32_t at = stand_of(waiting, number);
    return number && at < waiting->count && waiting->numbers[at] == number;
}

long long leave(Waiting* waiting, Hot* hot) {
    uint32_t at = hot->held_count - 1;
    while (hot->held[at] != waiting->number) --at;
    hot->held[at] = hot->held[--hot->held_count];
    return take_out(waiting, hot->number);
}

Waiting* find_frame(const Frames* frames, Piece key) { return find(frames, hash_of(key), key); }

long long let_go(Hot* hot) {
    long long grown_bytes = 0;
    for (uint32_t at = 0; at < hot->held_count; ++at) {
        if (at + 8 < hot->held_count) fetch(waiting_places.at(hot->held[at + 8]));
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
    for (size_t at = 0; at < count; ++at) fetch(frames->table.home(keys[at].hash));
    for (size_t at = 0; at < count; ++at) {
        const FramePlace* place = frames->table.guess(keys[at].hash);
        guessed[at] = place ? place->waiting : nullptr;
        if (!place) continue;
        fetch_to_write(guessed[at]);
        fetch(reinterpret_cast<const char*>(guessed[at]) + offsetof(Waiting, key_start) + keys[at].bytes.size - 1);
    }
    for (size_t at = 0; at < count; ++at) {
        if (guessed[at] && guessed[at]->count) fetch_to_write(guessed[at]->numbers + guessed[at]->count - 1);
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
    uint32_t* grown =
        count < UINT32_MAX / 2 ? static_cast<uint32_t*>(PyMem_Realloc(hot->held, count * sizeof(uint32_t))) : nullptr;
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

}  // namespace pequod
