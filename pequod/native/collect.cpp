// What a timeline gets from those it selects, in one call: all that is there (a first check), or what a log brings. Both
// find the group of each selected prefix, cut its rows into tails, and let the context wait at the prefix.
//
// They do the plain cases, and change nothing where a case is not: then Python's loops do all of it.
#include "timeline.hpp"

#include <algorithm>
#include <utility>

namespace pequod {

namespace {

// How the kernel of a join cuts keys; see `Timeline` and `Splice` in pequod/engine/joins/timeline.py.
struct Cutting {
    // A selected prefix is `before`, what a key of the check binds, and `after`.
    Piece before;
    // Of what is bound; -1: it goes up to a delimiter.
    Py_ssize_t width;
    Piece after;
    // A tail is as many bytes of a copied key, and the ending, a template.
    size_t copied;
    PyObject* ending;

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

// Arguments from `at` on: before, width, after, copied, ending.
bool read_cutting(PyObject* const* arguments, Cutting* cutting) {
    if (!check_all(PyBytes_CheckExact(arguments[0]) && PyBytes_CheckExact(arguments[2]) && is_template(arguments[4]),
                   "a kernel cuts by bytes, widths and a template")) {
        return false;
    }
    const Py_ssize_t width = arguments[1] == Py_None ? -1 : PyLong_AsSsize_t(arguments[1]);
    const Py_ssize_t copied = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return false;
    *cutting = {piece_of(arguments[0]), width, piece_of(arguments[2]), size_t(copied), arguments[4]};
    return check_all(copied >= 0, "no width is below 0");
}

// The selected prefixes, the bytes of which lie in one block.
struct Selected {
    char* block;
    FrameKey* keys;
    size_t count;

    Selected() : block(nullptr), keys(nullptr), count(0) {}
    Selected(const Selected&) = delete;
    Selected& operator=(const Selected&) = delete;
    ~Selected() {
        PyMem_Free(block);
        PyMem_Free(keys);
    }

    bool reserve(size_t block_size, size_t key_count) {
        block = static_cast<char*>(PyMem_Malloc(block_size ? block_size : 1));
        keys = static_cast<FrameKey*>(PyMem_Malloc((key_count ? key_count : 1) * sizeof(FrameKey)));
        if (block && keys) return true;
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

// Look up the groups of a table by prefixes, without an object for each.
class Groups {
  public:
    explicit Groups(const HotTable* table) : groups_(table->groups), scratch_(nullptr) {}
    Groups(const Groups&) = delete;
    Groups& operator=(const Groups&) = delete;
    ~Groups() { Py_XDECREF(scratch_); }

    // The rows of a prefix, null if there are none; false: an error is set.
    bool find(const FrameKey& prefix, SortedRows** rows) {
        *rows = nullptr;
        if (!scratch_ || piece_of(scratch_).size != prefix.bytes.size) {
            Py_XSETREF(scratch_, PyBytes_FromStringAndSize(nullptr, Py_ssize_t(prefix.bytes.size)));
            if (!scratch_) return false;
        }
        // No one else has this object: a look-up compares it and forgets it.
        std::memcpy(PyBytes_AS_STRING(scratch_), prefix.bytes.start, prefix.bytes.size);
        PyObject* group = _PyDict_GetItem_KnownHash(groups_, scratch_, Py_hash_t(prefix.hash));
        if (!group) return !PyErr_Occurred();
        *rows = reinterpret_cast<SortedRows*>(group);
        return check_all(is_rows(group), "groups are native rows");
    }

  private:
    PyObject* groups_;
    PyObject* scratch_;
};

// Add the rows of a group that are within bounds, cut into tails.
bool add_rows(const Cutting& cutting, const Bounds& bounds, SortedRows* rows, Piece prefix, Piece bound, Made* made) {
    const size_t known = prefix.size;
    Place place = {0, 0};
    if (bounds.first.size) {
        PyObject* begin = concatenated(prefix, bounds.first, {"", 0});
        if (!begin) return false;
        // Most posters have nothing new, which the last key tells.
        const bool is_below = rows->last.size && compare(rows->last.key(rows->last.size - 1), piece_of(begin)) < 0;
        if (!is_below) place = lower_bound(rows, piece_of(begin));
        Py_DECREF(begin);
        if (is_below) return true;
    }
    for (; place.leaf < rows->leaf_count(); place = {place.leaf + 1, 0}) {
        const Leaf& leaf = rows->leaf(place.leaf);
        for (; place.at < leaf.size; ++place.at) {
            const Piece key = leaf.key(place.at);
            const Piece rest = {key.start + known, key.size - known};
            if (bounds.last != Py_None && compare(rest, piece_of(bounds.last)) >= 0) return true;
            if (rest.size != cutting.copied) continue;
            PyObject* tail = cutting.make_tail(key, known, bound);
            if (!tail) return false;
            if (compare(piece_of(tail), bounds.lower) < 0 ||
                (bounds.upper != Py_None && compare(piece_of(tail), piece_of(bounds.upper)) >= 0)) {
                Py_DECREF(tail);
            } else if (!made->add(tail, leaf.entries[place.at].value)) {
                return false;
            }
        }
    }
    return true;
}

// The prefixes that the keys of rows in [begin, end) select.
bool select_prefixes(const Cutting& cutting, SortedRows* rows, Place start, Place stop, size_t known,
                     Selected* selected) {
    const size_t most = count_between(rows, start, stop);
    size_t block_size = 0;
    for (const bool is_counting : {true, false}) {
        char* to = nullptr;
        if (!is_counting) {
            if (!selected->reserve(block_size, most)) return false;
            to = selected->block;
        }
        for (Place place = start; place.leaf <= stop.leaf; place = {place.leaf + 1, 0}) {
            const Leaf& leaf = rows->leaf(place.leaf);
            const size_t end = place.leaf == stop.leaf ? stop.at : leaf.size;
            for (; place.at < end; ++place.at) {
                if (is_counting && place.at + 8 < end) __builtin_prefetch(leaf.entries[place.at + 8].key);
                Piece bound;
                if (!cutting.bind(leaf.key(place.at), known, &bound)) continue;
                const size_t size = cutting.prefix_size(bound);
                if (is_counting) {
                    block_size += size;
                    continue;
                }
                cutting.write_prefix(to, bound);
                selected->keys[selected->count++] = {{to, size}, hash_of({to, size})};
                to += size;
            }
        }
    }
    return true;
}

bool is_sound(PyObject* table) { return is_table(table) && table_of(table)->groups && PyDict_CheckExact(table_of(table)->groups); }

// collect(context, selecting, known, begin, end, copied, frames, lower, upper, first, last, room, before, width, after,
// copied width, ending): see `Timeline.collect`.
PyObject* collect(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    Cutting cutting;
    if (!check_count("collect", count, 17) || !read_cutting(arguments + 12, &cutting)) return nullptr;
    PyObject *context = arguments[0], *selecting = arguments[1], *begin = arguments[3], *end = arguments[4];
    PyObject *copied = arguments[5], *waiting = arguments[6];
    const Py_ssize_t known = PyLong_AsSsize_t(arguments[2]), room = PyLong_AsSsize_t(arguments[11]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(is_hot(context) && hot_of(context)->is_sound() && is_rows(selecting) && known >= 0 &&
                       PyBytes_CheckExact(begin) && is_bound(end) && is_sound(copied) &&
                       Py_TYPE(waiting) == frames_type && PyBytes_CheckExact(arguments[7]) && is_bound(arguments[8]) &&
                       PyBytes_CheckExact(arguments[9]) && is_bound(arguments[10]),
                   "collect takes a context, rows, a table and frames")) {
        return nullptr;
    }
    const Bounds bounds = {piece_of(arguments[7]), arguments[8], piece_of(arguments[9]), arguments[10]};
    SortedRows* rows = rows_of(hot_of(context));
    if (rows->last.size) Py_RETURN_NONE;
    SortedRows* keys = reinterpret_cast<SortedRows*>(selecting);
    const Place stop = end == Py_None ? Place{keys->older_size, keys->last.size} : lower_bound(keys, piece_of(end));
    Selected selected;
    if (!select_prefixes(cutting, keys, lower_bound(keys, piece_of(begin)), stop, size_t(known), &selected)) {
        return nullptr;
    }
    Made made;
    Groups groups(table_of(copied));
    for (size_t at = 0; at < selected.count; ++at) {
        SortedRows* group;
        if (!groups.find(selected.keys[at], &group)) return nullptr;
        if (!group) continue;
        const Piece prefix = selected.keys[at].bytes;
        const Piece bound = {prefix.start + cutting.before.size, prefix.size - cutting.before.size - cutting.after.size};
        if (!add_rows(cutting, bounds, group, prefix, bound, &made)) return nullptr;
        if (made.size > size_t(room)) Py_RETURN_NONE;
    }
    made.sort();
    long long grown_bytes = 0;
    if (made.size && !rows->last.make_room(made.size)) return nullptr;
    if (!wait_at_all(reinterpret_cast<Frames*>(waiting), selected.keys, selected.count, hot_of(context), &grown_bytes)) {
        return nullptr;
    }
    size_t ends_bytes = 0;
    if (made.size) {
        ends_bytes = piece_of(made.entries[0].key).size + piece_of(made.entries[made.size - 1].key).size;
        std::memcpy(rows->last.entries, made.entries, made.size * sizeof(Entry));
        rows->last.size = uint32_t(std::exchange(made.size, 0));
    }
    return Py_BuildValue("(InL)", rows->last.size, Py_ssize_t(ends_bytes / 2), grown_bytes);
}

// What a log brings: the sources of its keys that came, each selected once.
struct Came {
    Selected selected;

    // 1: read; 0: a key went, or is unusual, which is Python's; -1: an error is set.
    int read(PyObject* log, const Cutting& cutting, SortedRows* selecting, size_t known) {
        Py_ssize_t place = 0;
        PyObject *key, *was;
        size_t block_size = 0;
        while (PyDict_Next(log, &place, &key, &was)) {
            if (!PyTuple_CheckExact(key) || PyTuple_GET_SIZE(key) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(key, 1))) {
                return 0;
            }
            block_size += cutting.before.size + cutting.after.size + piece_of(PyTuple_GET_ITEM(key, 1)).size;
        }
        if (!selected.reserve(block_size, size_t(PyDict_GET_SIZE(log)))) return -1;
        char* to = selected.block;
        place = 0;
        while (PyDict_Next(log, &place, &key, &was)) {
            const Piece changed = piece_of(PyTuple_GET_ITEM(key, 1));
            const Place at = lower_bound(selecting, changed);
            const Leaf& leaf = selecting->leaf(at.leaf);
            const bool is_there = at.at < leaf.size && is_equal(leaf.key(at.at), changed);
            if (is_there == (was != Py_None)) continue;
            Piece bound;
            if (!is_there || !cutting.bind(changed, known, &bound)) return 0;
            const size_t size = cutting.prefix_size(bound);
            cutting.write_prefix(to, bound);
            selected.keys[selected.count++] = {{to, size}, hash_of({to, size})};
            to += size;
        }
        return 1;
    }
};

// apply_log(context, log, selecting, known, copied, frames, first, before, width, after, copied width, ending): see
// `Timeline.apply_log`.
PyObject* apply_log(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    Cutting cutting;
    if (!check_count("apply_log", count, 12) || !read_cutting(arguments + 7, &cutting)) return nullptr;
    PyObject *context = arguments[0], *log = arguments[1], *selecting = arguments[2], *copied = arguments[4];
    PyObject *waiting = arguments[5], *first = arguments[6];
    const Py_ssize_t known = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return nullptr;
    if (!check_all(is_hot(context) && hot_of(context)->is_sound() && PyDict_CheckExact(log) && is_rows(selecting) &&
                       known >= 0 && is_sound(copied) && Py_TYPE(waiting) == frames_type && PyBytes_CheckExact(first),
                   "apply_log takes a context, a log, rows, a table and frames")) {
        return nullptr;
    }
    Hot* hot = hot_of(context);
    // Several ranges are Python's to look through.
    if (!hot->is_open()) Py_RETURN_NONE;
    Came came;
    const int is_read = came.read(log, cutting, reinterpret_cast<SortedRows*>(selecting), size_t(known));
    if (is_read < 0) return nullptr;
    if (!is_read) Py_RETURN_NONE;
    Made made;
    Groups groups(table_of(copied));
    const Bounds bounds = {piece_of(hot->lower), Py_None, piece_of(first), Py_None};
    for (size_t at = 0; at < came.selected.count; ++at) {
        SortedRows* group;
        const Piece prefix = came.selected.keys[at].bytes;
        const Piece bound = {prefix.start + cutting.before.size, prefix.size - cutting.before.size - cutting.after.size};
        if (!groups.find(came.selected.keys[at], &group)) return nullptr;
        if (group && !add_rows(cutting, bounds, group, prefix, bound, &made)) return nullptr;
    }
    long long grown_bytes = 0, gained_bytes = 0;
    Py_ssize_t gained = 0;
    for (size_t at = 0; at < made.size; ++at) {
        PyObject* old = nullptr;
        const Put done = put(rows_of(hot), made.entries[at].key, made.entries[at].value, &old);
        Py_XDECREF(old);
        if (done == Put::FAILED) return nullptr;
        if (done == Put::REPLACED) continue;
        ++gained;
        gained_bytes += static_cast<long long>(piece_of(made.entries[at].key).size);
    }
    if (!wait_at_all(reinterpret_cast<Frames*>(waiting), came.selected.keys, came.selected.count, hot, &grown_bytes)) {
        return nullptr;
    }
    return Py_BuildValue("(nLL)", gained, gained_bytes, grown_bytes);
}

template <typename Function>
PyCFunction as_function(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

PyMethodDef functions[] = {
    {"collect", as_function(collect), METH_FASTCALL, "See Timeline.collect."},
    {"apply_log", as_function(apply_log), METH_FASTCALL, "See Timeline.apply_log."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_collect_functions(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace pequod
