// The rows of a table's groups by their prefixes: `HotGroups`, the base of `Groups` in pequod/engine/base/groups.py.
#pragma once

#include "fetch.hpp"
#include "places.hpp"

namespace pequod {

struct GroupPlace {
    size_t hash;
    // Both owned; exact `bytes`.
    PyObject* prefix;
    SortedRows* rows;

    bool is_free() const { return !rows; }
    Piece key() const { return piece_of(prefix); }
};

struct HotGroups {
    PyObject_HEAD
    Places<GroupPlace> table;
    // A list of the prefixes that have no place in the order yet.
    PyObject* fresh;
};

extern PyTypeObject* groups_type;

inline bool is_groups(PyObject* object) { return object && PyObject_TypeCheck(object, groups_type); }
inline HotGroups* groups_of(PyObject* object) { return reinterpret_cast<HotGroups*>(object); }

// The rows of a prefix, whose hash it is; null if there are none.
inline SortedRows* find_group(const HotGroups* groups, size_t hash, Piece prefix) {
    const GroupPlace* place = groups->table.find(hash, prefix);
    return place ? place->rows : nullptr;
}

// Make a new group without rows; null: an error is set. When FRESH_MAX prefixes have no place in the order, Python has
// to give them their places before there are more.
SortedRows* make_group(HotGroups* groups, size_t hash, Piece prefix);
constexpr Py_ssize_t FRESH_MAX = 1024;

// Fetch what look-ups of some prefixes will meet, one thing of each after the other.
template <typename Key>
void look_ahead_groups(const HotGroups* groups, const Key* keys, size_t count) {
    if (!groups->table.size) return;
    for (size_t at = 0; at < count; ++at) fetch(groups->table.home(keys[at].hash));
    for (size_t at = 0; at < count; ++at) {
        const GroupPlace* place = groups->table.guess(keys[at].hash);
        if (!place) continue;
        fetch(place->prefix);
        fetch(place->rows);
    }
    for (size_t at = 0; at < count; ++at) {
        const GroupPlace* place = groups->table.guess(keys[at].hash);
        if (place && place->rows->last.size) fetch(place->rows->last.entries + place->rows->last.size - 1);
    }
}

int add_group_type(PyObject* module);

}  // namespace pequod
