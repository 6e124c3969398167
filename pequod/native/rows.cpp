#include "rows.hpp"

#include <utility>

namespace pequod {

size_t leaf_max = 1024;

namespace {

constexpr size_t LEAF_LIMIT = UINT32_MAX / 2;

}  // namespace

PyObject* exact_bytes(PyObject* object) {
    if (PyBytes_CheckExact(object)) {
        Py_INCREF(object);
        return object;
    }
    if (PyBytes_Check(object)) return PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    PyErr_Format(PyExc_TypeError, "keys and values are bytes, not %.200s", Py_TYPE(object)->tp_name);
    return nullptr;
}

bool read_piece(PyObject* object, Piece* piece) {
    if (!PyBytes_Check(object)) {
        PyErr_Format(PyExc_TypeError, "keys are bytes, not %.200s", Py_TYPE(object)->tp_name);
        return false;
    }
    *piece = piece_of(object);
    return true;
}

bool Leaf::make_room(size_t more) {
    const size_t needed = size_t(size) + more;
    if (needed <= room) return true;
    if (needed > LEAF_LIMIT) {
        PyErr_NoMemory();
        return false;
    }
    // A fifth in reserve up to the length of most timelines, later an eighth, as lists have; nothing for a single row,
    // as many groups have. What is small grows often.
    return resize(needed + (needed < 64 ? needed / 5 : needed / 8) + (needed > 1 ? 3 : 0));
}

bool Leaf::make_exact_room(size_t count) {
    return count <= room || (count <= LEAF_LIMIT ? resize(count) : make_room(count));
}

bool Leaf::resize(size_t count) {
    Entry* grown = static_cast<Entry*>(PyMem_Realloc(entries, count * sizeof(Entry)));
    if (!grown) {
        PyErr_NoMemory();
        return false;
    }
    entries = grown;
    room = uint32_t(count);
    return true;
}

bool Leaf::insert(size_t at, PyObject* key, PyObject* value) {
    if (!make_room(1)) return false;
    std::memmove(entries + at + 1, entries + at, (size - at) * sizeof(Entry));
    Py_INCREF(key);
    Py_INCREF(value);
    entries[at] = {key, value};
    ++size;
    return true;
}

// Takes out the place alone: who calls owns the references that were there.
void Leaf::take_out(size_t at) {
    --size;
    std::memmove(entries + at, entries + at + 1, (size - at) * sizeof(Entry));
    if (!size) {
        PyMem_Free(entries);
        entries = nullptr;
        room = 0;
    } else if (size < room / 2) {
        Entry* smaller = static_cast<Entry*>(PyMem_Realloc(entries, size * sizeof(Entry)));
        if (smaller) {
            entries = smaller;
            room = size;
        }
    }
}

void Leaf::clear() {
    Entry* held = entries;
    const size_t count = size;
    entries = nullptr;
    size = room = 0;
    for (size_t at = 0; at < count; ++at) {
        Py_DECREF(held[at].key);
        Py_DECREF(held[at].value);
    }
    PyMem_Free(held);
}

namespace {

// Cut the leaf into pieces of half the greatest length; the last piece is the longest.
bool split(SortedRows* rows, size_t index) {
    Leaf& whole = rows->leaf(index);
    const size_t half = leaf_max / 2 ? leaf_max / 2 : 1;
    if (whole.size <= half) return true;
    const size_t added = (whole.size - half - 1) / half;
    if (!added) return true;
    const size_t count = rows->older_size + added;
    if (count > LEAF_LIMIT) {
        PyErr_NoMemory();
        return false;
    }
    if (count > rows->older_room) {
        const size_t roomy = count + (count >> 3) + 2;
        Leaf* grown = static_cast<Leaf*>(PyMem_Realloc(rows->older, roomy * sizeof(Leaf)));
        if (!grown) {
            PyErr_NoMemory();
            return false;
        }
        rows->older = grown;
        rows->older_room = uint32_t(roomy);
    }
    // The pieces first, as they may not be had; then nothing can fail.
    Leaf source = rows->leaf(index);
    Leaf* pieces = static_cast<Leaf*>(PyMem_Malloc((added + 1) * sizeof(Leaf)));
    bool is_whole = pieces != nullptr;
    size_t made = 0;
    for (size_t start = 0; is_whole && made <= added; ++made, start += half) {
        const size_t stop = made == added ? source.size : start + half;
        pieces[made] = {nullptr, 0, 0};
        is_whole = pieces[made].make_room(stop - start);
        if (!is_whole) break;
        std::memcpy(pieces[made].entries, source.entries + start, (stop - start) * sizeof(Entry));
        pieces[made].size = uint32_t(stop - start);
    }
    if (!is_whole) {
        for (size_t at = 0; pieces && at < made; ++at) PyMem_Free(pieces[at].entries);
        PyMem_Free(pieces);
        PyErr_NoMemory();
        return false;
    }
    PyMem_Free(source.entries);
    if (index < rows->older_size) {
        Leaf* at = rows->older + index;
        std::memmove(at + added + 1, at + 1, (rows->older_size - index - 1) * sizeof(Leaf));
        std::memcpy(at, pieces, (added + 1) * sizeof(Leaf));
    } else {
        std::memcpy(rows->older + index, pieces, added * sizeof(Leaf));
        rows->last = pieces[added];
    }
    rows->older_size = uint32_t(count);
    PyMem_Free(pieces);
    return true;
}

// Take out a leaf that has become empty.
void drop_leaf(SortedRows* rows, size_t index) {
    if (index < rows->older_size) {
        std::memmove(rows->older + index, rows->older + index + 1, (rows->older_size - index - 1) * sizeof(Leaf));
        --rows->older_size;
    } else if (rows->older_size) {
        rows->last = rows->older[--rows->older_size];
    }
    if (!rows->older_size) {
        PyMem_Free(rows->older);
        rows->older = nullptr;
        rows->older_room = 0;
    }
}

// Put the rows of two lists at a place of a leaf; nothing is changed on failure.
bool insert_lists(Leaf* leaf, size_t at, PyObject* keys, PyObject* values) {
    const size_t count = size_t(PyList_GET_SIZE(keys));
    for (size_t index = 0; index < count; ++index) {
        if (!PyBytes_CheckExact(PyList_GET_ITEM(keys, Py_ssize_t(index))) ||
            !PyBytes_CheckExact(PyList_GET_ITEM(values, Py_ssize_t(index)))) {
            PyErr_SetString(PyExc_TypeError, "keys and values are bytes");
            return false;
        }
    }
    // Rows that come at once mostly stay as they are, as those of a timeline that keeps some of them.
    if (!(leaf->size ? leaf->make_room(count) : leaf->make_exact_room(count))) return false;
    std::memmove(leaf->entries + at + count, leaf->entries + at, (leaf->size - at) * sizeof(Entry));
    for (size_t index = 0; index < count; ++index) {
        PyObject* key = PyList_GET_ITEM(keys, Py_ssize_t(index));
        PyObject* value = PyList_GET_ITEM(values, Py_ssize_t(index));
        leaf->entries[at + index] = {Py_NewRef(key), Py_NewRef(value)};
    }
    leaf->size += uint32_t(count);
    return true;
}

}  // namespace

Put put(SortedRows* rows, PyObject* key, PyObject* value, PyObject** old) {
    const Piece wanted = piece_of(key);
    Leaf& last = rows->last;
    if (last.size && compare(last.key(last.size - 1), wanted) < 0) {
        return last.insert(last.size, key, value) ? Put::NEW : Put::FAILED;
    }
    const size_t index = rows->leaf_of(wanted);
    Leaf& leaf = rows->leaf(index);
    const size_t at = leaf.lower_bound(wanted);
    if (at < leaf.size && is_equal(leaf.key(at), wanted)) {
        Py_INCREF(value);
        *old = std::exchange(leaf.entries[at].value, value);
        return Put::REPLACED;
    }
    if (!leaf.insert(at, key, value)) return Put::FAILED;
    // Without memory for it the leaf stays long, and is right all the same.
    if (leaf.size > leaf_max && !split(rows, index)) PyErr_Clear();
    return Put::NEW;
}

PyObject* remove(SortedRows* rows, Piece key) {
    size_t index = rows->leaf_of(key);
    size_t at = rows->leaf(index).lower_bound(key);
    if (at == rows->leaf(index).size || !is_equal(rows->leaf(index).key(at), key)) return nullptr;
    if (rows->leaf(index).size - at > leaf_max) {
        // The last leaf grows without end while keys are appended; taking many out at its front must stay cheap.
        if (!split(rows, index)) PyErr_Clear();
        index = rows->leaf_of(key);
        at = rows->leaf(index).lower_bound(key);
    }
    Leaf& leaf = rows->leaf(index);
    const Entry gone = leaf.entries[at];
    leaf.take_out(at);
    if (!leaf.size) drop_leaf(rows, index);
    Py_DECREF(gone.key);
    return gone.value;
}

bool take_first(SortedRows* rows, size_t count, SortedRows* taken) {
    const size_t there = row_count(rows);
    size_t left = count < there ? count : there;
    if (!left) return true;
    Leaf& into = taken->last;
    if (!into.make_room(left)) return false;
    while (left) {
        Leaf& leaf = rows->leaf(0);
        const uint32_t moved = leaf.size < left ? leaf.size : uint32_t(left);
        std::memcpy(into.entries + into.size, leaf.entries, moved * sizeof(Entry));
        into.size += moved;
        left -= moved;
        leaf.size -= moved;
        std::memmove(leaf.entries, leaf.entries + moved, leaf.size * sizeof(Entry));
        if (leaf.size) continue;
        PyMem_Free(leaf.entries);
        leaf = {nullptr, 0, 0};
        drop_leaf(rows, 0);
    }
    return true;
}

size_t count_between(SortedRows* rows, Place start, Place stop) {
    if (start.leaf == stop.leaf) return stop.at > start.at ? stop.at - start.at : 0;
    if (start.leaf > stop.leaf) return 0;
    size_t count = rows->leaf(start.leaf).size - start.at + stop.at;
    for (size_t index = start.leaf + 1; index < stop.leaf; ++index) count += rows->leaf(index).size;
    return count;
}

int insert_slice(SortedRows* rows, PyObject* keys, PyObject* values) {
    const size_t count = size_t(PyList_GET_SIZE(keys));
    Piece first, last;
    if (!count) return 1;
    if (!read_piece(PyList_GET_ITEM(keys, 0), &first) || !read_piece(PyList_GET_ITEM(keys, count - 1), &last)) {
        return -1;
    }
    const size_t index = rows->leaf_of(first);
    Leaf& leaf = rows->leaf(index);
    const size_t at = leaf.lower_bound(first);
    const bool is_append = index == rows->older_size && at == leaf.size;
    // What comes next is in this leaf, or the first of the leaf behind.
    if (at < leaf.size) {
        if (compare(leaf.key(at), last) <= 0) return 0;
    } else if (index < rows->older_size && compare(rows->leaf(index + 1).key(0), last) <= 0) {
        return 0;
    }
    if (!insert_lists(&leaf, at, keys, values)) return -1;
    if (leaf.size > leaf_max && !is_append && !split(rows, index)) PyErr_Clear();
    return 1;
}

}  // namespace pequod
