#include "tables.hpp"

namespace pequod {

namespace {

constexpr char DELIMITER = '|';

// The prefix of a key's group; no bytes: it is in none.
Piece group_of(const HotTable* table, Piece key) {
    const size_t start = piece_of(table->prefix).size;
    if (table->cut_width < 0 || key.size < start) return {nullptr, 0};
    if (table->cut_width) {
        const size_t size = start + size_t(table->cut_width);
        return {key.start, key.size < size ? 0 : size};
    }
    const void* found = std::memchr(key.start + start, DELIMITER, key.size - start);
    return {key.start, found ? size_t(static_cast<const char*>(found) - key.start) + 1 : 0};
}

// Whether `last` is not above all keys with a prefix, given that it is above one of them.
bool ends_within(Piece prefix, Piece last) {
    if (begins_with(last, prefix)) return true;
    size_t size = prefix.size;
    while (size && static_cast<unsigned char>(prefix.start[size - 1]) == 0xff) --size;
    return size && last.size == size && !std::memcmp(last.start, prefix.start, size - 1) &&
           static_cast<unsigned char>(last.start[size - 1]) == static_cast<unsigned char>(prefix.start[size - 1]) + 1;
}

SortedRows* rows_of_group(const HotTable* table, Piece prefix) {
    return find_group(groups_of(table->groups), hash_of(prefix), prefix);
}

}  // namespace

bool is_sound(const HotTable* table) {
    return table->prefix && PyBytes_CheckExact(table->prefix) && table->end && PyBytes_CheckExact(table->end) &&
           is_groups(table->groups) && is_rows(table->loose);
}

HotRelations* relations_at(PyObject* by_name, Piece key) {
    const void* found = key.size ? std::memchr(key.start, DELIMITER, key.size) : nullptr;
    // A name without bytes is Python's.
    if (!found || found == key.start) return nullptr;
    PyObject* name = PyBytes_FromStringAndSize(key.start, static_cast<const char*>(found) - key.start);
    if (!name) return nullptr;
    PyObject* relations = PyDict_GetItemWithError(by_name, name);
    Py_DECREF(name);
    if (!relations || !PyObject_TypeCheck(relations, relations_type)) return nullptr;
    HotRelations* hot = relations_of(relations);
    return is_table(hot->table) && is_sound(table_of(hot->table)) ? hot : nullptr;
}

SortedRows* rows_of(const HotTable* table, Piece key) {
    const Piece prefix = group_of(table, key);
    return prefix.size ? rows_of_group(table, prefix) : reinterpret_cast<SortedRows*>(table->loose);
}

namespace {

// The rows into which a key is put, those of a new group if it is the first one there; null: an error is set.
SortedRows* rows_for(const HotTable* table, Piece key) {
    const Piece prefix = group_of(table, key);
    if (!prefix.size) return reinterpret_cast<SortedRows*>(table->loose);
    HotGroups* groups = groups_of(table->groups);
    const size_t hash = hash_of(prefix);
    if (SortedRows* rows = find_group(groups, hash, prefix)) return rows;
    if (PyList_GET_SIZE(groups->fresh) < FRESH_MAX) return make_group(groups, hash, prefix);
    // Python gives the new prefixes their places in the order first.
    PyObject* made = PyObject_CallMethod(table->groups, "make", "y#", prefix.start, Py_ssize_t(prefix.size));
    const bool are_rows = made && is_rows(made);
    // The groups have it.
    Py_XDECREF(made);
    return are_rows ? reinterpret_cast<SortedRows*>(made) : nullptr;
}

}  // namespace

Put put(HotTable* table, PyObject* key, PyObject* value, PyObject** old) {
    SortedRows* rows = rows_for(table, piece_of(key));
    const Put done = rows ? put(rows, key, value, old) : Put::FAILED;
    if (done == Put::FAILED) return done;
    table->value_bytes += PyBytes_GET_SIZE(value);
    if (done == Put::REPLACED) {
        table->value_bytes -= PyBytes_GET_SIZE(*old);
    } else {
        ++table->entry_count;
        table->key_bytes += PyBytes_GET_SIZE(key);
    }
    return done;
}

PyObject* remove(HotTable* table, Piece key) {
    const Piece prefix = group_of(table, key);
    SortedRows* rows = rows_of(table, key);
    PyObject* old = rows ? remove(rows, key) : nullptr;
    if (!old) return nullptr;
    --table->entry_count;
    table->key_bytes -= static_cast<long long>(key.size);
    table->value_bytes -= PyBytes_GET_SIZE(old);
    if (prefix.size && !rows->last.size) {
        // Python takes an empty group out of the order too.
        PyObject* done = PyObject_CallMethod(table->groups, "remove", "y#", prefix.start, Py_ssize_t(prefix.size));
        if (!done) Py_CLEAR(old);
        Py_XDECREF(done);
    }
    return old;
}

PyObject* get(const HotTable* table, Piece key) {
    SortedRows* rows = rows_of(table, key);
    return rows ? get(rows, key) : nullptr;
}

Found rows_within(const HotTable* table, Piece first, Piece last) {
    if (table->cut_width < 0) return {true, reinterpret_cast<SortedRows*>(table->loose)};
    const Piece prefix = group_of(table, first);
    if (!prefix.size || !ends_within(prefix, last)) return {false, nullptr};
    return {true, rows_of_group(table, prefix)};
}

PyObject* context_at(const HotRelations* relations, Piece key) {
    if (!relations->contexts || !PyDict_CheckExact(relations->contexts) || relations->slot_start < 0) return nullptr;
    size_t size = size_t(relations->slot_start);
    if (key.size < size) return nullptr;
    if (relations->slot_width) {
        size += size_t(relations->slot_width);
    } else {
        const void* found = std::memchr(key.start + size, DELIMITER, key.size - size);
        if (!found) return nullptr;
        size = size_t(static_cast<const char*>(found) - key.start);
    }
    size += size_t(relations->slot_follow);
    if (key.size < size) return nullptr;
    PyObject* prefix = PyBytes_FromStringAndSize(key.start, Py_ssize_t(size));
    PyObject* context = prefix ? PyDict_GetItemWithError(relations->contexts, prefix) : nullptr;
    Py_XDECREF(prefix);
    return context;
}

namespace {

// The range that holds a key, as a row of its first key and its end; the end of the rows if none does.
Place range_at(SortedRows* bounds, Piece key) {
    Place place = lower_bound(bounds, key);
    const Leaf& leaf = bounds->leaf(place.leaf);
    if (place.at < leaf.size && is_equal(leaf.key(place.at), key)) return place;
    // A leaf that is not the first one begins at the key or below.
    if (!place.at || compare(key, piece_of(leaf.entries[place.at - 1].value)) >= 0) {
        return {bounds->older_size, bounds->last.size};
    }
    return {place.leaf, place.at - 1};
}

bool is_at_end(const SortedRows* bounds, Place place) {
    return place.leaf == bounds->older_size && place.at == bounds->last.size;
}

// The next range.
Place next_to(SortedRows* bounds, Place place) {
    const bool is_last = place.at + 1 == bounds->leaf(place.leaf).size && place.leaf < bounds->older_size;
    return is_last ? Place{place.leaf + 1, 0} : Place{place.leaf, place.at + 1};
}

// The loaded ranges of a table; null if clients write it.
SortedRows* loaded_of(const HotTable* table) {
    return table->loaded && is_rows(table->loaded) ? reinterpret_cast<SortedRows*>(table->loaded) : nullptr;
}

}  // namespace

bool is_loaded(const HotTable* table, Piece key) {
    SortedRows* bounds = loaded_of(table);
    return !bounds || !is_at_end(bounds, range_at(bounds, key));
}

bool use_loaded(const HotTable* table, Piece first, Piece last, long long number) {
    SortedRows* bounds = loaded_of(table);
    if (!bounds || !table->uses || !PyDict_CheckExact(table->uses)) return false;
    Place place = range_at(bounds, first);
    while (!is_at_end(bounds, place)) {
        const Entry& range = bounds->leaf(place.leaf).entries[place.at];
        PyObject* used = PyDict_GetItemWithError(table->uses, range.key);
        if (!is_numbers(used)) return false;
        reinterpret_cast<Numbers*>(used)->number = number;
        const Piece end = piece_of(range.value);
        if (compare(last, end) <= 0) return true;
        place = next_to(bounds, place);
        if (is_at_end(bounds, place) || !is_equal(bounds->leaf(place.leaf).key(place.at), end)) return false;
    }
    return false;
}

bool is_loaded_from(const HotTable* table, Piece first, Piece prefix) {
    SortedRows* bounds = loaded_of(table);
    if (!bounds) return true;
    Place place = range_at(bounds, first);
    while (!is_at_end(bounds, place)) {
        const Leaf& leaf = bounds->leaf(place.leaf);
        const Piece end = piece_of(leaf.entries[place.at].value);
        // Above all keys with the prefix.
        if (compare(end, prefix) > 0 && !begins_with(end, prefix)) return true;
        // Ranges that are kept apart may touch.
        place = next_to(bounds, place);
        if (is_at_end(bounds, place) || !is_equal(bounds->leaf(place.leaf).key(place.at), end)) return false;
    }
    return false;
}

TablesAhead::Guess TablesAhead::rows_of(Piece key) {
    size_t at = 0;
    while (at < COUNT && names_[at].size && !begins_with(key, names_[at])) ++at;
    if (at == COUNT) return {nullptr, 0, nullptr};
    if (!names_[at].size) {
        const HotRelations* relations = relations_at(by_name_, key);
        PyErr_Clear();
        if (!relations) return {nullptr, 0, nullptr};
        tables_[at] = table_of(relations->table);
        names_[at] = piece_of(tables_[at]->prefix);
    }
    const Piece prefix = group_of(tables_[at], key);
    if (!prefix.size) return {nullptr, 0, reinterpret_cast<const SortedRows*>(tables_[at]->loose)};
    return {groups_of(tables_[at]->groups), hash_of(prefix), nullptr};
}

const SortedRows* TablesAhead::Guess::rows() const {
    const GroupPlace* place = groups ? groups->table.guess(hash) : nullptr;
    return place ? place->rows : loose;
}

}  // namespace pequod
