// The Python type of sorted rows.
#include "arguments.hpp"
#include "row_lists.hpp"

#include <utility>

namespace pequod {

PyTypeObject* rows_type = nullptr;

namespace {

SortedRows* self_of(PyObject* self) { return reinterpret_cast<SortedRows*>(self); }

Place end_of(SortedRows* rows) { return {rows->older_size, rows->last.size}; }

// The places of `[first, last)`; a last of None is the end.
bool read_bounds(SortedRows* rows, PyObject* first, PyObject* last, Place* start, Place* stop) {
    Piece low, high;
    if (!read_piece(first, &low)) return false;
    *start = lower_bound(rows, low);
    *stop = end_of(rows);
    if (last == Py_None) return true;
    if (!read_piece(last, &high)) return false;
    *stop = lower_bound(rows, high);
    return true;
}

bool check_count(const char* name, Py_ssize_t count, Py_ssize_t least, Py_ssize_t most) {
    if (least <= count && count <= most) return true;
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments by position, not %zd", name, least, most, count);
    return false;
}

// Over a list whose reference is taken; null: an error is set.
PyObject* iterator_over(PyObject* list) {
    PyObject* iterator = list ? PyObject_GetIter(list) : nullptr;
    Py_XDECREF(list);
    return iterator;
}

PyObject* method_get(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!read_piece(key, &wanted)) return nullptr;
    PyObject* value = get(self_of(self), wanted);
    return Py_NewRef(value ? value : Py_None);
}

PyObject* method_put(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("put", count, 2, 2)) return nullptr;
    PyObject* key = exact_bytes(arguments[0]);
    PyObject* value = key ? exact_bytes(arguments[1]) : nullptr;
    PyObject* old = nullptr;
    const Put done = value ? put(self_of(self), key, value, &old) : Put::FAILED;
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (done == Put::FAILED) return nullptr;
    return done == Put::NEW ? Py_NewRef(Py_None) : old;
}

PyObject* method_remove(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!read_piece(key, &wanted)) return nullptr;
    PyObject* old = remove(self_of(self), wanted);
    return old ? old : Py_NewRef(Py_None);
}

PyObject* method_take_first(PyObject* self, PyObject* count) {
    const Py_ssize_t wanted = PyLong_AsSsize_t(count);
    if (wanted < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a count is not negative");
        return nullptr;
    }
    PyObject* taken = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(Py_TYPE(self)));
    if (taken && !take_first(self_of(self), size_t(wanted), self_of(taken))) Py_CLEAR(taken);
    return taken;
}

PyObject* method_floor_key(PyObject* self, PyObject* key) {
    Piece wanted;
    if (!read_piece(key, &wanted)) return nullptr;
    const Place place = lower_bound(self_of(self), wanted);
    const Leaf& leaf = self_of(self)->leaf(place.leaf);
    if (place.at < leaf.size && is_equal(leaf.key(place.at), wanted)) return Py_NewRef(leaf.entries[place.at].key);
    // A leaf that is not the first one begins at the key or below.
    return Py_NewRef(place.at ? leaf.entries[place.at - 1].key : Py_None);
}

PyObject* method_replace(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("replace", count, 2, 2)) return nullptr;
    Piece wanted;
    if (!read_piece(arguments[0], &wanted)) return nullptr;
    const Place place = lower_bound(self_of(self), wanted);
    Leaf& leaf = self_of(self)->leaf(place.leaf);
    if (place.at == leaf.size || !is_equal(leaf.key(place.at), wanted)) Py_RETURN_NONE;
    PyObject* value = exact_bytes(arguments[1]);
    if (!value) return nullptr;
    Entry& entry = leaf.entries[place.at];
    PyObject* key = Py_NewRef(entry.key);
    Py_SETREF(entry.value, value);
    return key;
}

bool check_lists(const char* name, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count(name, count, 2, 2)) return false;
    if (PyList_CheckExact(arguments[0]) && PyList_CheckExact(arguments[1]) &&
        PyList_GET_SIZE(arguments[0]) == PyList_GET_SIZE(arguments[1])) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s takes two lists of one length", name);
    return false;
}

PyObject* method_insert(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_lists("insert", arguments, count)) return nullptr;
    const int done = insert_slice(self_of(self), arguments[0], arguments[1]);
    return done < 0 ? nullptr : PyBool_FromLong(done);
}

PyObject* method_merge(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_lists("merge", arguments, count)) return nullptr;
    const int done = insert_slice(self_of(self), arguments[0], arguments[1]);
    if (done < 0) return nullptr;
    for (Py_ssize_t at = 0; !done && at < PyList_GET_SIZE(arguments[0]); ++at) {
        PyObject* row[] = {PyList_GET_ITEM(arguments[0], at), PyList_GET_ITEM(arguments[1], at)};
        PyObject* old = method_put(self, row, 2);
        if (!old) return nullptr;
        Py_DECREF(old);
    }
    Py_RETURN_NONE;
}

PyObject* method_slice(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
    if (!check_count("slice", count, 2, 3)) return nullptr;
    PyObject* limit = count > 2 ? arguments[2] : nullptr;
    int is_reverse = 0;
    for (Py_ssize_t at = 0; names && at < PyTuple_GET_SIZE(names); ++at) {
        PyObject* name = PyTuple_GET_ITEM(names, at);
        PyObject* argument = arguments[count + at];
        if (!PyUnicode_CompareWithASCIIString(name, "reverse")) {
            is_reverse = PyObject_IsTrue(argument);
            if (is_reverse < 0) return nullptr;
        } else if (!PyUnicode_CompareWithASCIIString(name, "limit") && !limit) {
            limit = argument;
        } else {
            return PyErr_Format(PyExc_TypeError, "slice takes no argument %R", name);
        }
    }
    SortedRows* rows = self_of(self);
    size_t most;
    Place start, stop;
    if (!read_limit(limit, &most) || !read_bounds(rows, arguments[0], arguments[1], &start, &stop)) return nullptr;
    const size_t found = count_between(rows, start, stop);
    return list_rows(rows, is_reverse ? stop : start, found < most ? found : most, is_reverse ? -1 : 1, {nullptr, 0});
}

PyObject* method_since(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("since", count, 3, 3)) return nullptr;
    SortedRows* rows = self_of(self);
    Piece prefix, first;
    size_t most;
    if (!read_piece(arguments[0], &prefix) || !read_piece(arguments[1], &first) || !read_limit(arguments[2], &most)) {
        return nullptr;
    }
    const size_t passed = prefix.size < first.size ? prefix.size : first.size;
    const Place start = lower_bound(rows, {first.start + passed, first.size - passed});
    const size_t found = count_between(rows, start, end_of(rows));
    return list_rows(rows, start, found < most ? found : most, 1, prefix);
}

PyObject* method_everything(PyObject* self, PyObject*) {
    return list_rows(self_of(self), {0, 0}, row_count(self_of(self)), 1, {nullptr, 0});
}

PyObject* method_count(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    Place start, stop;
    if (!check_count("count", count, 2, 2)) return nullptr;
    if (!read_bounds(self_of(self), arguments[0], arguments[1], &start, &stop)) return nullptr;
    return PyLong_FromSize_t(count_between(self_of(self), start, stop));
}

PyObject* method_sample(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    SortedRows* rows = self_of(self);
    Place start, stop;
    if (!check_count("sample", count, 3, 3)) return nullptr;
    const Py_ssize_t step = PyLong_AsSsize_t(arguments[2]);
    if (step < 1) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a step is above 0");
        return nullptr;
    }
    if (!read_bounds(rows, arguments[0], arguments[1], &start, &stop)) return nullptr;
    PyObject* found = PyList_New(0);
    for (size_t index = start.leaf; found && index <= stop.leaf; ++index) {
        const Leaf& leaf = rows->leaf(index);
        const size_t end = index == stop.leaf ? stop.at : leaf.size;
        for (size_t at = index == start.leaf ? start.at : 0; found && at < end; at += size_t(step)) {
            const size_t left = end - at;
            PyObject* pair = Py_BuildValue("(On)", leaf.entries[at].key, left < size_t(step) ? Py_ssize_t(left) : step);
            if (!pair || PyList_Append(found, pair) < 0) Py_CLEAR(found);
            Py_XDECREF(pair);
        }
    }
    return iterator_over(found);
}

PyObject* method_leaves(PyObject* self, PyObject*) {
    SortedRows* rows = self_of(self);
    PyObject* found = PyList_New(Py_ssize_t(rows->leaf_count()));
    for (size_t index = 0; found && index < rows->leaf_count(); ++index) {
        PyObject* leaf = list_rows(rows, {index, 0}, rows->leaf(index).size, 1, {nullptr, 0});
        if (leaf) {
            PyList_SET_ITEM(found, Py_ssize_t(index), leaf);
        } else {
            Py_CLEAR(found);
        }
    }
    return iterator_over(found);
}

PyObject* method_check(PyObject* self, PyObject*) {
    SortedRows* rows = self_of(self);
    const Piece* before = nullptr;
    Piece key;
    for (size_t index = 0; index < rows->leaf_count(); ++index) {
        const Leaf& leaf = rows->leaf(index);
        if (!leaf.size && rows->older_size) {
            PyErr_SetString(PyExc_AssertionError, "invariant 2");
            return nullptr;
        }
        for (size_t at = 0; at < leaf.size; ++at) {
            const Piece next = leaf.key(at);
            if (before && compare(*before, next) >= 0) {
                PyErr_SetString(PyExc_AssertionError, "invariant 1");
                return nullptr;
            }
            key = next;
            before = &key;
        }
    }
    Py_RETURN_NONE;
}

PyObject* method_sizeof(PyObject* self, PyObject*) {
    SortedRows* rows = self_of(self);
    size_t size = sizeof(SortedRows) + rows->older_room * sizeof(Leaf);
    for (size_t index = 0; index < rows->leaf_count(); ++index) size += rows->leaf(index).room * sizeof(Entry);
    return PyLong_FromSize_t(size);
}

Py_ssize_t get_length(PyObject* self) { return Py_ssize_t(row_count(self_of(self))); }

int is_filled(PyObject* self) { return self_of(self)->last.size > 0; }

void dealloc(PyObject* self) {
    SortedRows* rows = self_of(self);
    PyTypeObject* type = Py_TYPE(self);
    rows->last.clear();
    for (size_t index = 0; index < rows->older_size; ++index) rows->older[index].clear();
    PyMem_Free(rows->older);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"get", method_get, METH_O, "Return the value of a key, or None if it is absent."},
    {"put", as_function(method_put), METH_FASTCALL,
     "Set a key and return the value that it had, None if it was absent."},
    {"remove", method_remove, METH_O, "Take a key out and return the value that it had, None if it was absent."},
    {"take_first", method_take_first, METH_O, "Take the first rows out, and return them as rows of their own."},
    {"floor_key", method_floor_key, METH_O, "Return the greatest key that is not above a key, or None."},
    {"replace", as_function(method_replace), METH_FASTCALL,
     "Set a key that is there; return the row's own key or None."},
    {"merge", as_function(method_merge), METH_FASTCALL, "Take in rows with strictly ascending keys."},
    {"insert", as_function(method_insert), METH_FASTCALL,
     "Take in rows that come between two rows here, as one slice."},
    {"slice", as_function(method_slice), METH_FASTCALL | METH_KEYWORDS, "Return the rows of [first, last)."},
    {"since", as_function(method_since), METH_FASTCALL,
     "Return the rows from a key on with a prefix before their keys."},
    {"everything", method_everything, METH_NOARGS, "Return all rows."},
    {"count", as_function(method_count), METH_FASTCALL, "Return how many keys [first, last) holds."},
    {"sample", as_function(method_sample), METH_FASTCALL, "Return about every step-th key, and what it stands for."},
    {"leaves", method_leaves, METH_NOARGS, "Return the leaves in key order."},
    {"_check", method_check, METH_NOARGS, "Check the invariants."},
    {"__sizeof__", method_sizeof, METH_NOARGS, "Return the size in bytes, without the rows."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("An ordered map from keys to values; see the Python class of this name.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_sq_length, reinterpret_cast<void*>(get_length)},
    {Py_nb_bool, reinterpret_cast<void*>(is_filled)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.SortedRows", sizeof(SortedRows), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

PyObject* set_leaf_max(PyObject*, PyObject* count) {
    const Py_ssize_t wanted = PyLong_AsSsize_t(count);
    if (wanted < 2) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "leaves hold 2 rows or more");
        return nullptr;
    }
    return PyLong_FromSize_t(std::exchange(leaf_max, size_t(wanted)));
}

PyMethodDef functions[] = {
    {"set_leaf_max", set_leaf_max, METH_O, "Split leaves beyond this length, as tests do; return what it was."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_rows_type(PyObject* module) {
    rows_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!rows_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "SortedRows", reinterpret_cast<PyObject*>(rows_type));
}

}  // namespace pequod
