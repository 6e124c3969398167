// Indexes over records: the bases of `Index` in pequod/engine/joins/indexes.py and of `Projection` in
// pequod/engine/joins/projections.py. The attributes are as these two say.
//
//     put article|7 {"author":"ann"}, which was bob's
//     shown    before article|bob|7, afterwards article|ann|7: one row of the index goes, one comes
//
// Python code sets the attributes, and may set anything: they are looked at before they are used.
#pragma once

#include "lens.hpp"
#include "state.hpp"
#include "tables.hpp"

namespace pequod {

// A change of a key: the values are null if the key was or is absent.
struct Change {
    PyObject* key;
    PyObject* old;
    PyObject* value;
};

struct HotIndex {
    PyObject_HEAD
    // A `HotTable`; None: the index is not made.
    PyObject* rows;
    // The same of an index that is being made.
    PyObject* begun;
    // A `QuickLens`; None: Python shows the rows.
    PyObject* quick;
    // A `HotLedger`.
    PyObject* ledger;
    long long counted_bytes;
    char has_own_values;

    template <typename Function>
    int each(Function function) {
        for (PyObject** member : {&rows, &begun, &quick, &ledger}) {
            if (const int result = function(member)) return result;
        }
        return 0;
    }
};

// The sites that see the same in the records of a table.
struct HotProjection {
    PyObject_HEAD
    PyObject* index;
    // A list of lists of sites.
    PyObject* readers;

    template <typename Function>
    int each(Function function) {
        const int result = function(&index);
        return result ? result : function(&readers);
    }
};

extern PyTypeObject* index_type;
extern PyTypeObject* projection_type;

inline bool is_projection(PyObject* object) { return PyObject_TypeCheck(object, projection_type); }
inline HotProjection* projection_of(PyObject* object) { return reinterpret_cast<HotProjection*>(object); }

// The bytes of its rows in the ledger.
long long count_bytes(const HotIndex* index);

// Enter into the ledger by how much the rows have grown.
// REQUIRES: it has a ledger, which `is_sound` says.
void weigh(HotIndex* index);

// What a change of a row of the table changes in what it shows: the plain row that goes, and the one that comes or gets
// another value.
class Look {
  public:
    // False: Python has to look, or an error is set. Nothing is changed. To be called once.
    bool begin(HotIndex* index, const Change& change);
    // Change the rows of the index, if it is made. False: an error is set.
    bool take_in() const;
    // Give back what it owns.
    void end();

    size_t count() const { return count_; }
    const Change& at(size_t number) const { return changes_[number]; }

  private:
    // Find what the old value showed; false: see `begin`.
    bool find_before(const QuickLens* lens, const Change& change);

    HotIndex* index_;
    Shown before_, after_;
    Change changes_[2];
    size_t count_;
};

int add_index_types(PyObject* module);

}  // namespace pequod
