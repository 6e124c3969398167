#include "indexes.hpp"

#include "records.hpp"

namespace pequod {

PyTypeObject* index_type = nullptr;
PyTypeObject* projection_type = nullptr;

namespace {

HotIndex* index_of(PyObject* object) { return reinterpret_cast<HotIndex*>(object); }

// Its rows, all or some; null: there are none.
HotTable* rows_of(const HotIndex* index) {
    PyObject* rows = is_table(index->rows) ? index->rows : index->begun;
    return is_table(rows) && is_sound(table_of(rows)) ? table_of(rows) : nullptr;
}

bool is_sound(const HotIndex* index) {
    return index->rows && index->begun && index->quick && index->ledger &&
           PyObject_TypeCheck(index->ledger, ledger_type);
}

}  // namespace

long long count_bytes(const HotIndex* index) {
    const HotTable* rows = rows_of(index);
    if (!rows) return 0;
    const long long groups = static_cast<long long>(groups_of(rows->groups)->table.size);
    const long long own_bytes = index->has_own_values ? rows->value_bytes : -sizes.tail * rows->entry_count;
    return sizes.table + groups * sizes.group + rows->entry_count * sizes.row + rows->key_bytes + own_bytes;
}

void weigh(HotIndex* index) {
    const long long counted_bytes = count_bytes(index);
    change_indexes(reinterpret_cast<HotLedger*>(index->ledger), 0, counted_bytes - index->counted_bytes);
    index->counted_bytes = counted_bytes;
}

bool Look::find_before(const QuickLens* lens, const Change& change) {
    if (index_->rows != Py_None) {
        // No other row of the table shows this plain key: if the index has it, it is what the old value showed. The
        // rest of that need not be read, which is out of the processor's cache (`pequod bench indexes`).
        before_.key = likely_key(lens, change.key, change.old);
        if (before_.key) before_.value = get(table_of(index_->rows), piece_of(before_.key));
        if (Py_XNewRef(before_.value)) return true;
        Py_CLEAR(before_.key);
        if (PyErr_Occurred()) return false;
    }
    return show(lens, change.key, change.old, &before_);
}

bool Look::begin(HotIndex* index, const Change& change) {
    index_ = index;
    before_ = after_ = {nullptr, nullptr};
    count_ = 0;
    if (!is_sound(index) || index->begun != Py_None || Py_TYPE(index->quick) != lens_type) return false;
    if (index->rows != Py_None && !rows_of(index)) return false;
    const QuickLens* lens = reinterpret_cast<const QuickLens*>(index->quick);
    if (change.value && !show(lens, change.key, change.value, &after_)) return false;
    if (change.old && !find_before(lens, change)) return false;
    if (before_.key && after_.key && is_equal(piece_of(before_.key), piece_of(after_.key))) {
        if (is_equal(piece_of(before_.value), piece_of(after_.value))) return true;
        changes_[count_++] = {after_.key, before_.value, after_.value};
        return true;
    }
    if (before_.key) changes_[count_++] = {before_.key, before_.value, nullptr};
    if (after_.key) changes_[count_++] = {after_.key, nullptr, after_.value};
    return true;
}

bool Look::take_in() const {
    if (index_->rows == Py_None || !count_) return true;
    HotTable* rows = table_of(index_->rows);
    for (size_t at = 0; at < count_; ++at) {
        const Change& change = changes_[at];
        PyObject* old = nullptr;
        if (change.value) {
            if (put(rows, change.key, change.value, &old) == Put::FAILED) return false;
        } else {
            old = remove(rows, piece_of(change.key));
        }
        Py_XDECREF(old);
    }
    if (PyErr_Occurred()) return false;
    weigh(index_);
    return true;
}

void Look::end() {
    for (PyObject* owned : {before_.key, before_.value, after_.key, after_.value}) Py_XDECREF(owned);
}

namespace {

PyObject* index_count_bytes(PyObject* self, PyObject*) { return PyLong_FromLongLong(count_bytes(index_of(self))); }

PyObject* index_weigh(PyObject* self, PyObject*) {
    if (!is_sound(index_of(self))) {
        PyErr_SetString(PyExc_TypeError, "an index has a ledger");
        return nullptr;
    }
    weigh(index_of(self));
    Py_RETURN_NONE;
}

PyMethodDef index_methods[] = {
    {"count_bytes", index_count_bytes, METH_NOARGS, "Return the memory of the rows."},
    {"weigh", index_weigh, METH_NOARGS, "Enter into the ledger by how much the rows have grown."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef index_members[] = {
    PEQUOD_MEMBER(HotIndex, rows, T_OBJECT),
    PEQUOD_MEMBER(HotIndex, begun, T_OBJECT),
    PEQUOD_MEMBER(HotIndex, quick, T_OBJECT),
    PEQUOD_MEMBER(HotIndex, ledger, T_OBJECT),
    PEQUOD_MEMBER(HotIndex, counted_bytes, T_LONGLONG),
    PEQUOD_MEMBER(HotIndex, has_own_values, T_BOOL),
    PEQUOD_LAST_MEMBER,
};

PyMemberDef projection_members[] = {PEQUOD_MEMBER(HotProjection, index, T_OBJECT),
                                    PEQUOD_MEMBER(HotProjection, readers, T_OBJECT), PEQUOD_LAST_MEMBER};

}  // namespace

int add_index_types(PyObject* module) {
    index_type = make_record_type<HotIndex>("pequod.native._hot.HotIndex", index_members, index_methods);
    if (!index_type || PyModule_AddObjectRef(module, "HotIndex", reinterpret_cast<PyObject*>(index_type)) < 0)
        return -1;
    projection_type = make_record_type<HotProjection>("pequod.native._hot.HotProjection", projection_members);
    return projection_type
               ? PyModule_AddObjectRef(module, "HotProjection", reinterpret_cast<PyObject*>(projection_type))
               : -1;
}

}  // namespace pequod
