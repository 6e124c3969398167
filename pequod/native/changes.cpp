// Changes and their bytes on the wire.
#include "changes.hpp"

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

// Watches are many, and mostly are told little at a time.
constexpr size_t FIRST_ROOM = 4, KEPT_ROOM = 16;
constexpr Piece NOTHING = {"", 0};

Piece piece_or_nothing(PyObject* bytes) { return bytes ? piece_of(bytes) : NOTHING; }

size_t varint_size(uint64_t value) {
    size_t size = 1;
    for (; value >= 0x80; value >>= 7) ++size;
    return size;
}

size_t field_size(size_t size) { return 1 + varint_size(size) + size; }

// Integers as varints: their bytes, and their sum.
struct Packed {
    size_t size = 0;
    uint64_t sum = 0;

    // False: an error is set.
    bool measure(PyObject* list) {
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); ++at) {
            const unsigned long value = PyLong_AsUnsignedLong(PyList_GET_ITEM(list, at));
            if (value == static_cast<unsigned long>(-1) && PyErr_Occurred()) return false;
            size += varint_size(value);
            sum += value;
        }
        return true;
    }

    // REQUIRES: the list was measured.
    char* write(char* to, unsigned char tag, PyObject* list) const {
        *to++ = char(tag);
        to = write_varint(to, size);
        for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); ++at) {
            to = write_varint(to, PyLong_AsUnsignedLong(PyList_GET_ITEM(list, at)));
        }
        return to;
    }
};

char* write_changes(char* to, const Changes* changes) {
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange& change = changes->items[at];
        to = write_piece(to, TOLD_KEYS, piece_of(change.key));
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
    return to;
}

}  // namespace

Changes* new_changes() { return changes_of(PyType_GenericNew(changes_type, nullptr, nullptr)); }

bool reserve(Changes* changes, size_t more) {
    if (changes->room - changes->count >= more) return true;
    const size_t doubled = changes->room ? 2 * changes->room : FIRST_ROOM;
    const size_t roomy = doubled > changes->count + more ? doubled : changes->count + more;
    void* grown = PyMem_Realloc(changes->items, roomy * sizeof(ToldChange));
    if (!grown) return PyErr_NoMemory(), false;
    changes->items = static_cast<ToldChange*>(grown);
    changes->room = roomy;
    return true;
}

bool add_change(Changes* changes, PyObject* key, PyObject* old, PyObject* value, bool is_expired) {
    if (!reserve(changes, 1)) return false;
    Py_INCREF(key);
    Py_XINCREF(old);
    Py_XINCREF(value);
    changes->items[changes->count++] = {key, old, value, is_expired};
    return true;
}

void move_all(Changes* from, Changes* to) {
    std::memcpy(to->items + to->count, from->items, from->count * sizeof(ToldChange));
    to->count += from->count;
    from->count = 0;
    if (from->room <= KEPT_ROOM) return;
    PyMem_Free(from->items);
    from->items = nullptr;
    from->room = 0;
}

PyObject* encode_changes(Piece head, const Changes* changes, PyObject* numbers, PyObject* counts) {
    Packed ranges, runs;
    if (!ranges.measure(numbers) || !runs.measure(counts)) return nullptr;
    if (PyList_GET_SIZE(numbers) != PyList_GET_SIZE(counts) || runs.sum != changes->count) {
        PyErr_SetString(PyExc_ValueError, "the counts are those of all ranges, and of all changes");
        return nullptr;
    }
    size_t size = head.size;
    if (changes->count) size += field_size(ranges.size) + field_size(runs.size) + field_size(changes->count);
    for (size_t at = 0; at < changes->count; ++at) {
        const ToldChange& change = changes->items[at];
        size += field_size(piece_of(change.key).size) + field_size(piece_or_nothing(change.value).size) +
                field_size(piece_or_nothing(change.old).size);
    }
    PyObject* message = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
    if (!message) return nullptr;
    char* to = PyBytes_AS_STRING(message);
    std::memcpy(to, head.start, head.size);
    if (!changes->count) return message;
    to = ranges.write(to + head.size, TOLD_RANGES, numbers);
    write_changes(runs.write(to, TOLD_COUNTS, counts), changes);
    return message;
}

}  // namespace pequod
