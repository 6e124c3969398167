// Changes, and their bytes on the wire.
#include "changes.hpp"

#include <utility>

#include "messages.hpp"

namespace pequod {

namespace {

// Fields of a WatchRangesReply; see proto/pequod/v1/pequod.proto.
enum ToldTag : unsigned char {
    TOLD_RANGES = 0x22,
    TOLD_COUNTS = 0x2a,
    TOLD_KEYS = 0x32,
    TOLD_VALUES = 0x3a,
    TOLD_OLDS = 0x42,
    TOLD_KINDS = 0x4a,
};
enum Kind : unsigned char { HAD_VALUE = 1, HAS_VALUE = 2, HAS_EXPIRED = 4 };

// Watches are many, and mostly are told little at a time; a beat is mostly like the one before.
constexpr size_t FIRST_ROOM = 4, USUAL_COUNT_MAX = 4096, USUAL_BYTES_MAX = 1 << 18;
constexpr uint32_t RUNS_MAX = 1u << 31;
constexpr Piece NOTHING = {"", 0};

Piece piece_or_nothing(PyObject* bytes) { return bytes ? piece_of(bytes) : NOTHING; }

size_t varint_size(uint64_t value) {
    size_t size = 1;
    for (; value >= 0x80; value >>= 7) ++size;
    return size;
}

size_t field_size(size_t size) { return 1 + varint_size(size) + size; }

// Room for one item more; false: an error is set.
template <typename Item, typename Size>
bool make_room(Item** items, Size count, Size* room, Size first_room) {
    if (count < *room) return true;
    const Size roomy = *room ? 2 * *room : first_room;
    void* grown = PyMem_Realloc(*items, size_t(roomy) * sizeof(Item));
    if (!grown) return PyErr_NoMemory(), false;
    *items = static_cast<Item*>(grown);
    *room = roomy;
    return true;
}

// Give back what is not needed: changes may be kept for long.
void trim(Changes* changes) {
    if (changes->room > 2 * changes->count) {
        void* less = PyMem_Realloc(changes->items, changes->count * sizeof(ToldChange));
        if (less) changes->items = static_cast<ToldChange*>(less), changes->room = changes->count;
    }
    Buffer& keys = changes->keys;
    if (keys.room <= 2 * keys.size) return;
    void* less = PyMem_Realloc(keys.start, keys.size);
    if (less) keys.start = static_cast<char*>(less), keys.room = keys.size;
}

// One member of all runs, as varints.
template <typename Member>
char* write_runs(char* to, unsigned char tag, const Changes* changes, size_t size, Member member) {
    *to++ = char(tag);
    to = write_varint(to, size);
    for (uint32_t at = 0; at < changes->run_count; ++at) {
        if (changes->runs[at].count) to = write_varint(to, changes->runs[at].*member);
    }
    return to;
}

template <typename Member>
size_t runs_size(const Changes* changes, Member member) {
    size_t size = 0;
    for (uint32_t at = 0; at < changes->run_count; ++at) {
        if (changes->runs[at].count) size += varint_size(changes->runs[at].*member);
    }
    return size;
}

void write_changes(char* to, const Changes* changes) {
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange& change = changes->items[at];
        to = write_piece(to, TOLD_KEYS, changes->key(change));
        to = write_piece(to, TOLD_VALUES, piece_or_nothing(change.value));
        to = write_piece(to, TOLD_OLDS, piece_or_nothing(change.old));
    }
    *to++ = char(TOLD_KINDS);
    to = write_varint(to, changes->count);
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange& change = changes->items[at];
        *to++ =
            char((change.old ? HAD_VALUE : 0) | (change.value ? HAS_VALUE : 0) | (change.is_expired ? HAS_EXPIRED : 0));
    }
}

}  // namespace

Changes* new_changes() { return changes_of(PyType_GenericNew(changes_type, nullptr, nullptr)); }

bool begin_run(Changes* changes, uint32_t number) {
    if (changes->run_count == RUNS_MAX) return PyErr_NoMemory(), false;
    if (!make_room(&changes->runs, changes->run_count, &changes->run_room, uint32_t(1))) return false;
    changes->runs[changes->run_count++] = {number, 0};
    return true;
}

bool add_change(Changes* changes, uint32_t run, Piece prefix, Piece tail, PyObject* old, PyObject* value,
                bool is_expired) {
    const size_t key_size = prefix.size + tail.size;
    const size_t first_room = changes->usual_count > FIRST_ROOM ? changes->usual_count : FIRST_ROOM;
    const size_t more = changes->keys.room ? key_size : key_size + changes->usual_bytes;
    char* key = key_size > UINT32_MAX ? static_cast<char*>(Buffer::nothing()) : changes->keys.reserve(more);
    if (!key || !make_room(&changes->items, changes->count, &changes->room, first_room)) return false;
    std::memcpy(key, prefix.start, prefix.size);
    std::memcpy(key + prefix.size, tail.start, tail.size);
    Py_XINCREF(old);
    Py_XINCREF(value);
    if (changes->count && run < changes->items[changes->count - 1].run) changes->is_mixed = true;
    ToldChange& added = changes->items[changes->count++];
    added.key_start = changes->keys.size;
    added.key_size = uint32_t(key_size);
    added.run = run & (RUNS_MAX - 1);
    added.is_expired = is_expired;
    added.old = old;
    added.value = value;
    changes->keys.size += key_size;
    ++changes->runs[run].count;
    const size_t old_size = piece_or_nothing(old).size, value_size = piece_or_nothing(value).size;
    changes->before_bytes += key_size + old_size;
    changes->after_bytes += value_size;
    changes->wire_bytes += field_size(key_size) + field_size(old_size) + field_size(value_size);
    return true;
}

bool group(Changes* changes) {
    if (!changes->is_mixed) return true;
    auto* items = static_cast<ToldChange*>(PyMem_Malloc(changes->count * sizeof(ToldChange)));
    auto* starts = static_cast<size_t*>(PyMem_Malloc(changes->run_count * sizeof(size_t)));
    const bool has_room = items && starts;
    if (has_room) {
        size_t start = 0;
        for (uint32_t run = 0; run < changes->run_count; ++run) {
            starts[run] = start;
            start += changes->runs[run].count;
        }
        for (size_t at = 0; at < changes->count; ++at) items[starts[changes->items[at].run]++] = changes->items[at];
        std::swap(items, changes->items);
        changes->room = changes->count;
        changes->is_mixed = false;
    } else {
        PyErr_NoMemory();
    }
    PyMem_Free(starts);
    PyMem_Free(items);
    return has_room;
}

bool move_all(Changes* from, Changes* to) {
    if (!group(from)) return false;
    const PyObject head = to->ob_base;
    *to = *from;
    to->ob_base = head;
    const uint64_t beat = from->beat;
    std::memset(reinterpret_cast<char*>(from) + sizeof(PyObject), 0, sizeof(Changes) - sizeof(PyObject));
    from->beat = beat + 1;
    from->usual_count = to->count < USUAL_COUNT_MAX ? to->count : USUAL_COUNT_MAX;
    from->usual_bytes = to->keys.size < USUAL_BYTES_MAX ? to->keys.size : USUAL_BYTES_MAX;
    trim(to);
    return true;
}

void take_out(Changes* changes, uint32_t run) {
    if (!changes->runs[run].count) return;
    size_t kept = 0;
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange change = changes->items[at];
        if (change.run != run) {
            changes->items[kept++] = change;
            continue;
        }
        const size_t old_size = piece_or_nothing(change.old).size, value_size = piece_or_nothing(change.value).size;
        changes->before_bytes -= change.key_size + old_size;
        changes->after_bytes -= value_size;
        changes->wire_bytes -= field_size(change.key_size) + field_size(old_size) + field_size(value_size);
        Py_XDECREF(change.old);
        Py_XDECREF(change.value);
    }
    changes->runs[run].count = 0;
    changes->count = kept;
    // The keys of the others stay where they are.
    if (!kept) changes->keys.size = 0;
}

void clear(Changes* changes) {
    for (size_t at = 0; at < changes->count; ++at) {
        Py_XDECREF(changes->items[at].old);
        Py_XDECREF(changes->items[at].value);
    }
    PyMem_Free(changes->items);
    PyMem_Free(changes->keys.start);
    PyMem_Free(changes->runs);
    const uint64_t beat = changes->beat;
    std::memset(reinterpret_cast<char*>(changes) + sizeof(PyObject), 0, sizeof(Changes) - sizeof(PyObject));
    changes->beat = beat + 1;
}

PyObject* encode_changes(Piece head, const Changes* changes) {
    const size_t ranges = runs_size(changes, &ToldRun::number), counts = runs_size(changes, &ToldRun::count);
    size_t size = head.size;
    if (changes->count) {
        size += field_size(ranges) + field_size(counts) + field_size(changes->count) + changes->wire_bytes;
    }
    PyObject* message = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
    if (!message) return nullptr;
    char* to = PyBytes_AS_STRING(message);
    std::memcpy(to, head.start, head.size);
    if (!changes->count) return message;
    to = write_runs(to + head.size, TOLD_RANGES, changes, ranges, &ToldRun::number);
    write_changes(write_runs(to, TOLD_COUNTS, changes, counts, &ToldRun::count), changes);
    return message;
}

}  // namespace pequod
