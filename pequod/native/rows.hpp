// Rows in key order, natively: the twin of `SortedRows` in pequod/engine/base/rows.py.
//
//     older leaves                    last leaf
//     [(a 1) (b 2)] [(d 4) (e 5)]     [(g 7) (h 8)]
//                    ^ a leaf begins with its first key, which does for a fence
//
// A leaf is one array of pointers to Python `bytes`, key beside value: a look-up that ends at a key has its value in
// the same cache line. The type holds bytes and nothing else, so it can be in no reference cycle and is not tracked by
// the garbage collector.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace pequod {

// Bytes that something else owns: a Python object, or a message.
struct Piece {
    const char* start;
    size_t size;
};

inline Piece piece_of(PyObject* bytes) { return {PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes))}; }

// Below 0, 0, or above 0, as a comes before b, is b, or comes after it.
inline int compare(Piece a, Piece b) {
    const size_t shared = a.size < b.size ? a.size : b.size;
    const int order = std::memcmp(a.start, b.start, shared);
    if (order) return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

inline bool is_equal(Piece a, Piece b) { return a.size == b.size && std::memcmp(a.start, b.start, a.size) == 0; }

inline bool begins_with(Piece key, Piece prefix) {
    return key.size >= prefix.size && std::memcmp(key.start, prefix.start, prefix.size) == 0;
}

// A row; both references are owned.
struct Entry {
    PyObject* key;
    PyObject* value;
};

struct Leaf {
    Entry* entries;
    uint32_t size;
    uint32_t room;

    Piece key(size_t at) const { return piece_of(entries[at].key); }

    // The place of the first key that is not below `wanted`, looked for from `from` on.
    size_t lower_bound(Piece wanted, size_t from = 0) const {
        size_t low = from, high = size;
        while (low < high) {
            const size_t half = (high - low) / 2, middle = low + half;
            if (half > 2) {
                // One of these is next: so the processor waits for two steps at once.
                __builtin_prefetch(entries[low + half / 2].key);
                __builtin_prefetch(entries[middle + 1 + half / 2].key);
            }
            if (compare(key(middle), wanted) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    bool make_room(size_t more);
    // The same without a reserve; the leaf is empty.
    bool make_exact_room(size_t count);
    bool insert(size_t at, PyObject* key, PyObject* value);
    void take_out(size_t at);
    void clear();

  private:
    bool resize(size_t count);
};

// Invariants:
//   1. Keys ascend strictly within a leaf and from leaf to leaf.
//   2. No older leaf is empty, nor is the last one while there are older ones.
struct SortedRows {
    PyObject_HEAD
    // Every key here is above every key of the older leaves.
    Leaf last;
    Leaf* older;
    uint32_t older_size;
    uint32_t older_room;

    size_t leaf_count() const { return size_t(older_size) + 1; }
    Leaf& leaf(size_t index) { return index < older_size ? older[index] : last; }

    // The leaf in which a key is, or would be.
    size_t leaf_of(Piece key) {
        if (!older_size || (last.size && compare(last.key(0), key) <= 0)) return older_size;
        size_t low = 0, high = older_size - 1;
        while (low < high) {
            const size_t middle = low + (high - low + 1) / 2;
            if (compare(older[middle].key(0), key) <= 0) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low;
    }
};

// A row of rows, or the end: the place behind the last one.
struct Place {
    size_t leaf;
    size_t at;
};

// What became of a put.
enum class Put { FAILED, NEW, REPLACED };

extern PyTypeObject* rows_type;
// A leaf longer than this is split when something is inserted into its middle; tests make it small.
extern size_t leaf_max;

inline bool is_rows(PyObject* object) { return object && Py_TYPE(object) == rows_type; }

// The place of the first key that is not below `key`.
inline Place lower_bound(SortedRows* rows, Piece key) {
    const size_t leaf = rows->leaf_of(key);
    return {leaf, rows->leaf(leaf).lower_bound(key)};
}

// Set a key, both exact `bytes`. REPLACED: `old` is the former value, which the caller owns. FAILED: an error is set.
Put put(SortedRows* rows, PyObject* key, PyObject* value, PyObject** old);

// Take out a key; return its value, which the caller owns, or null.
PyObject* remove(SortedRows* rows, Piece key);

// Take out the first rows, as many as there are up to a count, and put them into other rows, which are empty. False: an
// error is set, and nothing has changed.
bool take_first(SortedRows* rows, size_t count, SortedRows* taken);

inline size_t row_count(SortedRows* rows) {
    size_t count = rows->last.size;
    for (size_t index = 0; index < rows->older_size; ++index) count += rows->older[index].size;
    return count;
}

// The row of a key; null: it is not there.
inline const Entry* row_of(SortedRows* rows, Piece key) {
    const Place place = lower_bound(rows, key);
    const Leaf& leaf = rows->leaf(place.leaf);
    return place.at < leaf.size && is_equal(leaf.key(place.at), key) ? leaf.entries + place.at : nullptr;
}

// The value of a key, borrowed; null: it is not there.
inline PyObject* get(SortedRows* rows, Piece key) {
    const Entry* row = row_of(rows, key);
    return row ? row->value : nullptr;
}

// How many rows there are from one place up to another, 0 if that is not behind the first.
size_t count_between(SortedRows* rows, Place start, Place stop);

// Put in the rows of two lists whose keys ascend. 1: done; 0: they do not come between two rows here, nothing is
// changed; -1: an error is set.
int insert_slice(SortedRows* rows, PyObject* keys, PyObject* values);

// A new reference to exact `bytes`: what a subclass does at its end could run while rows are being changed. Null: an
// error is set.
PyObject* exact_bytes(PyObject* object);

// The bytes of a key; false: it is none, an error is set.
bool read_piece(PyObject* object, Piece* piece);

int add_rows_type(PyObject* module);

}  // namespace pequod
