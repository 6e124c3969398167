// Tables, and what depends on them: the bases of `Table` in pequod/engine/base/table.py and of `Relations` in
// pequod/engine/joins/relations.py. The attributes are as these two say.
//
// Python code sets the attributes, and may set anything: what is used here as rows or as a dictionary is looked at
// first.
#pragma once

#include "groups.hpp"
#include "numbers.hpp"

namespace pequod {

// The rows of a table: `HotTable`, the base of `Table`.
struct HotTable {
    PyObject_HEAD
    long long entry_count, key_bytes, value_bytes;
    PyObject* prefix;
    PyObject* end;
    // A `HotGroups`.
    PyObject* groups;
    PyObject* loose;
    // The bounds of the loaded ranges, as rows, if a database owns the keys; else None.
    PyObject* loaded;
    // For each of them, by where it starts, the number of the latest read that has used it; else None.
    PyObject* uses;
    // A group's prefix has this many bytes beside the table's own; 0: it goes to the next delimiter; -1: there are
    // none.
    long long cut_width;

    // Call a function with each Python reference, until it returns something else than 0; return that.
    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&prefix, &end, &groups, &loose, &loaded, &uses}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

// A table with what depends on it: `HotRelations`, the base of `Relations`.
struct HotRelations {
    PyObject_HEAD
    PyObject* table;
    // A list of lists of sites.
    PyObject* readers;
    // A list of indexes with searched ranges.
    PyObject* searched;
    // The contexts of the one join that computes keys of the table, by their prefixes: a dictionary; else None.
    PyObject* contexts;
    // How a prefix of level one is cut from a key: up to here it is the same in all; then comes a slot of this width,
    // or one up to a delimiter if that is 0; then so many bytes.
    long long slot_start, slot_width, slot_follow;
    char is_owned;
    char is_watched;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&table, &readers, &searched, &contexts}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

extern PyTypeObject* table_type;
extern PyTypeObject* relations_type;

inline HotTable* table_of(PyObject* object) { return reinterpret_cast<HotTable*>(object); }
inline HotRelations* relations_of(PyObject* object) { return reinterpret_cast<HotRelations*>(object); }
inline bool is_table(PyObject* object) { return object && PyObject_TypeCheck(object, table_type); }

// The relations of the table of a key, whose name ends at the first delimiter: null if there are none, and for a key
// without a name, or with an error set. The reference is borrowed.
HotRelations* relations_at(PyObject* by_name, Piece key);

// Its attributes are what they should be, which the functions below require.
bool is_sound(const HotTable* table);

// What has the level-one prefix of a key among the contexts, borrowed; null: there is none, or an error is set.
PyObject* context_at(const HotRelations* relations, Piece key);

// Rows that are found. Not quick: they are Python's to find.
struct Found {
    bool is_quick;
    // Null: there are none.
    SortedRows* rows;
};

// The rows among which a key is, or would be; null: there are none.
SortedRows* rows_of(const HotTable* table, Piece key);

// Set a key, both exact `bytes`, as `put` of rows. FAILED: an error is set.
Put put(HotTable* table, PyObject* key, PyObject* value, PyObject** old);

// Take a key out; return its value, which the caller owns. Null: it is not there, or an error is set.
PyObject* remove(HotTable* table, Piece key);

// The value of a key, borrowed; null: it is not there.
PyObject* get(const HotTable* table, Piece key);

// The rows that have all keys of `[first, last)`; quick if they are in one group, or the table has none.
Found rows_within(const HotTable* table, Piece first, Piece last);

// Whether a key is loaded, or need not be: clients write the table.
bool is_loaded(const HotTable* table, Piece key);

// Whether all keys of a range are loaded of a table that a database owns, and its first key if it has no other. The
// loaded ranges from `first` on are used by a read of this number.
bool use_loaded(const HotTable* table, Piece first, Piece last, long long number);

// Whether all keys from one on that begin with a prefix are loaded, or need not be.
bool is_loaded_from(const HotTable* table, Piece first, Piece prefix);

// The tables of keys that are written or looked up one after the other, most of which are of the same few tables.
class TablesAhead {
  public:
    explicit TablesAhead(PyObject* by_name) : by_name_(by_name) {}

    // Where rows are that most likely have a key, for fetching them. The groups are null if they are those without one,
    // which are null too if nothing is known.
    struct Guess {
        const HotGroups* groups;
        size_t hash;
        const SortedRows* loose;

        const SortedRows* rows() const;
    };
    Guess rows_of(Piece key);

  private:
    static constexpr size_t COUNT = 4;

    PyObject* by_name_;
    // The names with their delimiters; no bytes: there is none yet.
    Piece names_[COUNT] = {};
    const HotTable* tables_[COUNT] = {};
};

int add_table_types(PyObject* module);

}  // namespace pequod
