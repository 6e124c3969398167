#include "tables.hpp"

#include "records.hpp"

namespace pequod {

PyTypeObject* table_type = nullptr;
PyTypeObject* relations_type = nullptr;

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

bool is_sound(const HotTable* table) {
    return table->prefix && PyBytes_CheckExact(table->prefix) && table->end && PyBytes_CheckExact(table->end) &&
           is_groups(table->groups) && is_rows(table->loose);
}

Found rows_of_group(const HotTable* table, Piece prefix) {
    return {true, find_group(groups_of(table->groups), hash_of(prefix), prefix)};
}

}  // namespace

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

Found rows_of(const HotTable* table, Piece key) {
    const Piece prefix = group_of(table, key);
    return prefix.size ? rows_of_group(table, prefix) : Found{true, reinterpret_cast<SortedRows*>(table->loose)};
}

SortedRows* rows_for(const HotTable* table, Piece key) {
    const Piece prefix = group_of(table, key);
    if (!prefix.size) return reinterpret_cast<SortedRows*>(table->loose);
    HotGroups* groups = groups_of(table->groups);
    const size_t hash = hash_of(prefix);
    if (SortedRows* rows = find_group(groups, hash, prefix)) return rows;
    // Otherwise Python gives the new prefixes their places in the order first.
    return PyList_GET_SIZE(groups->fresh) < FRESH_MAX ? make_group(groups, hash, prefix) : nullptr;
}

Found rows_within(const HotTable* table, Piece first, Piece last) {
    if (table->cut_width < 0) return {true, reinterpret_cast<SortedRows*>(table->loose)};
    const Piece prefix = group_of(table, first);
    return prefix.size && ends_within(prefix, last) ? rows_of_group(table, prefix) : Found{false, nullptr};
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

// The loaded ranges of a table; null if clients write it.
SortedRows* loaded_of(const HotTable* table) {
    return table->loaded && is_rows(table->loaded) ? reinterpret_cast<SortedRows*>(table->loaded) : nullptr;
}

}  // namespace

bool is_loaded(const HotTable* table, Piece key) {
    SortedRows* bounds = loaded_of(table);
    return !bounds || !is_at_end(bounds, range_at(bounds, key));
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
        place = place.at + 1 < leaf.size ? Place{place.leaf, place.at + 1} : Place{place.leaf + 1, 0};
        if (place.leaf > bounds->older_size || !is_equal(bounds->leaf(place.leaf).key(place.at), end)) return false;
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

namespace {

PyMemberDef table_members[] = {
    PEQUOD_MEMBER(HotTable, entry_count, T_LONGLONG), PEQUOD_MEMBER(HotTable, key_bytes, T_LONGLONG),
    PEQUOD_MEMBER(HotTable, value_bytes, T_LONGLONG), PEQUOD_MEMBER(HotTable, prefix, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, end, T_OBJECT_EX),        PEQUOD_MEMBER(HotTable, groups, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, loose, T_OBJECT_EX),      PEQUOD_MEMBER(HotTable, loaded, T_OBJECT_EX),
    PEQUOD_MEMBER(HotTable, cut_width, T_LONGLONG),   PEQUOD_LAST_MEMBER,
};
PyMemberDef relations_members[] = {
    PEQUOD_MEMBER(HotRelations, table, T_OBJECT_EX),    PEQUOD_MEMBER(HotRelations, readers, T_OBJECT_EX),
    PEQUOD_MEMBER(HotRelations, searched, T_OBJECT_EX), PEQUOD_MEMBER(HotRelations, is_owned, T_BOOL),
    PEQUOD_MEMBER(HotRelations, is_watched, T_BOOL),    PEQUOD_LAST_MEMBER,
};

}  // namespace

int add_table_types(PyObject* module) {
    table_type = make_record_type<HotTable>("pequod.native._hot.HotTable", table_members);
    relations_type = make_record_type<HotRelations>("pequod.native._hot.HotRelations", relations_members);
    if (!table_type || !relations_type) return -1;
    if (PyModule_AddObjectRef(module, "HotTable", reinterpret_cast<PyObject*>(table_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotRelations", reinterpret_cast<PyObject*>(relations_type));
}

}  // namespace pequod
