// How the rows of those who are selected become those of a timeline: prefixes, rows cut into tails, and what holds them
// meanwhile.
#pragma once

#include "arguments.hpp"
#include "kernel.hpp"

#include <algorithm>
#include <utility>

namespace pequod {

// How a kernel cuts keys.
struct Cutting {
    Piece before;
    Py_ssize_t width;
    Piece after;
    size_t copied;
    PyObject* ending;

    explicit Cutting(const Kernel* kernel)
        : before(piece_of(kernel->before)), width(kernel->bound_width), after(piece_of(kernel->after)),
          copied(size_t(kernel->tail_width)), ending(kernel->ending) {}

    // What a key binds behind its known part; false: it is not a key of the check.
    bool bind(Piece key, size_t known, Piece* bound) const {
        if (key.size < known) return false;
        *bound = {key.start + known, key.size - known};
        return width < 0 ? bound->size && !std::memchr(bound->start, '|', bound->size) : bound->size == size_t(width);
    }

    size_t prefix_size(Piece bound) const { return before.size + bound.size + after.size; }

    void write_prefix(char* to, Piece bound) const {
        std::memcpy(to, before.start, before.size);
        std::memcpy(to + before.size, bound.start, bound.size);
        std::memcpy(to + before.size + bound.size, after.start, after.size);
    }

    PyObject* make_tail(Piece key, size_t known, Piece bound) const {
        PyObject* tail = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(copied + spelled_size(ending, bound)));
        if (!tail) return nullptr;
        std::memcpy(PyBytes_AS_STRING(tail), key.start + known, copied);
        spell(PyBytes_AS_STRING(tail) + copied, ending, bound);
        return tail;
    }
};

// The selected prefixes, the bytes of which lie in one block.
struct Selected {
    char* block;
    FrameKey* keys;
    // Of each: whether it is selected no more.
    bool* went;
    size_t count;

    Selected() : block(nullptr), keys(nullptr), went(nullptr), count(0) {}
    Selected(const Selected&) = delete;
    Selected& operator=(const Selected&) = delete;
    ~Selected() {
        PyMem_Free(block);
        PyMem_Free(keys);
        PyMem_Free(went);
    }

    void add(Piece prefix, bool is_gone) {
        keys[count] = {prefix, hash_of(prefix)};
        went[count++] = is_gone;
    }

    bool reserve(size_t block_size, size_t key_count) {
        block = static_cast<char*>(PyMem_Malloc(block_size ? block_size : 1));
        keys = static_cast<FrameKey*>(PyMem_Malloc((key_count ? key_count : 1) * sizeof(FrameKey)));
        went = static_cast<bool*>(PyMem_Calloc(key_count ? key_count : 1, sizeof(bool)));
        if (block && keys && went) return true;
        PyErr_NoMemory();
        return false;
    }
};

// Rows that were made and belong to nobody yet.
struct Made {
    Entry* entries;
    size_t size;
    size_t room;

    Made() : entries(nullptr), size(0), room(0) {}
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;
    ~Made() {
        for (size_t at = 0; at < size; ++at) {
            Py_DECREF(entries[at].key);
            Py_DECREF(entries[at].value);
        }
        PyMem_Free(entries);
    }

    // Add a row; the reference to the tail is taken.
    bool add(PyObject* tail, PyObject* value) {
        if (size == room) {
            const size_t roomy = 2 * room + 64;
            Entry* grown = static_cast<Entry*>(PyMem_Realloc(entries, roomy * sizeof(Entry)));
            if (!grown) {
                Py_DECREF(tail);
                PyErr_NoMemory();
                return false;
            }
            entries = grown;
            room = roomy;
        }
        entries[size++] = {tail, Py_NewRef(value)};
        return true;
    }

    // Sort by tails; of equal ones the last one stays.
    void sort() {
        const auto is_below = [](const Entry& a, const Entry& b) {
            return compare(piece_of(a.key), piece_of(b.key)) < 0;
        };
        if (!std::is_sorted(entries, entries + size, is_below)) std::stable_sort(entries, entries + size, is_below);
        size_t kept = 0;
        for (size_t at = 0; at < size; ++at) {
            if (kept && is_equal(piece_of(entries[kept - 1].key), piece_of(entries[at].key))) {
                std::swap(entries[kept - 1], entries[at]);
                Py_DECREF(entries[at].key);
                Py_DECREF(entries[at].value);
            } else {
                entries[kept++] = entries[at];
            }
        }
        size = kept;
    }
};

// Bounds on tails, and the same on what copied keys have behind their prefix. An upper or a last of None: the end.
struct Bounds {
    Piece lower;
    PyObject* upper;
    Piece first;
    PyObject* last;
};

}  // namespace pequod
