#include "watches.hpp"

#include "arguments.hpp"
#include "records.hpp"

namespace pequod {

PyTypeObject* watch_type = nullptr;
PyTypeObject* waker_type = nullptr;

namespace {

HotWatch* watch_of(PyObject* object) { return reinterpret_cast<HotWatch*>(object); }

// As `PyObject_TypeCheck`, which takes longer for what nearly all are: of a class whose base is the type.
bool is_of(PyObject* object, PyTypeObject* type) {
    return Py_TYPE(object)->tp_base == type || PyObject_TypeCheck(object, type);
}

// It is as it should be, and has lost no rows.
bool is_tellable(PyObject* object) {
    if (!is_of(object, watch_type)) return false;
    const HotWatch* watch = watch_of(object);
    return watch->first && PyBytes_CheckExact(watch->first) && watch->last && is_bound(watch->last) &&
           is_changes(watch->changes) && watch->lost && PyList_CheckExact(watch->lost) && !PyList_GET_SIZE(watch->lost);
}

// What it was told is all that there is to know.
bool is_settled(PyObject* object) {
    const HotWatch* watch = watch_of(object);
    return is_tellable(object) && watch->stale && PyDict_CheckExact(watch->stale) && !PyDict_GET_SIZE(watch->stale) &&
           watch->ended == Py_None;
}

// As `compare`, of a key in two parts.
int compare_parts(Piece prefix, Piece tail, Piece other) {
    const size_t shared = prefix.size < other.size ? prefix.size : other.size;
    const int order = std::memcmp(prefix.start, other.start, shared);
    if (order || other.size < prefix.size) return order ? order : 1;
    return compare(tail, {other.start + shared, other.size - shared});
}

bool holds(const HotWatch* watch, Piece prefix, Piece tail) {
    return compare_parts(prefix, tail, piece_of(watch->first)) >= 0 &&
           (watch->last == Py_None || compare_parts(prefix, tail, piece_of(watch->last)) < 0);
}

// Call its waker; false: an error is set.
bool wake(HotWatch* watch) {
    watch->is_awake = true;
    PyObject* waker = watch->waker;
    if (!check_all(waker, "a watch has somebody to wake")) return false;
    const HotWaker* hot = is_of(waker, waker_type) ? reinterpret_cast<HotWaker*>(waker) : nullptr;
    PyObject* called = waker;
    if (hot && hot->woken && PyList_CheckExact(hot->woken) && hot->number && hot->begin) {
        const bool is_first = !PyList_GET_SIZE(hot->woken);
        if (PyList_Append(hot->woken, hot->number) < 0) return false;
        if (!is_first) return true;
        called = hot->begin;
    }
    Py_INCREF(called);
    PyObject* answer = PyObject_CallNoArgs(called);
    Py_DECREF(called);
    Py_XDECREF(answer);
    return answer;
}

// Whether what these watches were told is all that there is to know of each, and of how many changes; -1: an error is
// set.
int are_all_settled(PyObject* watches, PyObject* woken, size_t* total) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(woken); ++at) {
        PyObject* number = PyList_GET_ITEM(woken, at);
        if (!check_all(PyLong_CheckExact(number), "watches are named by numbers")) return -1;
        PyObject* watch = PyDict_GetItemWithError(watches, number);
        if (!watch || !is_settled(watch)) return PyErr_Occurred() ? -1 : 0;
        *total += changes_of(watch_of(watch)->changes)->count;
    }
    return 1;
}

// take_runs(watches, woken): see the Python function of this name.
PyObject* take_runs(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("take_runs", count, 2)) return nullptr;
    PyObject *watches = arguments[0], *woken = arguments[1];
    if (!check_all(PyDict_CheckExact(watches) && PyList_CheckExact(woken), "take_runs takes watches and numbers")) {
        return nullptr;
    }
    // Before the look: what makes objects may run the garbage collector, and that anything.
    Changes* changes = new_changes();
    PyObject *numbers = PyList_New(0), *counts = PyList_New(0);
    size_t total = 0;
    const int are_settled = changes && numbers && counts ? are_all_settled(watches, woken, &total) : -1;
    bool is_done = are_settled > 0 && reserve(changes, total);
    for (Py_ssize_t at = 0; is_done && at < PyList_GET_SIZE(woken); ++at) {
        PyObject* number = PyList_GET_ITEM(woken, at);
        HotWatch* watch = watch_of(PyDict_GetItemWithError(watches, number));
        Changes* told = changes_of(watch->changes);
        watch->is_awake = false;
        if (!told->count) continue;
        is_done = PyList_Append(numbers, number) == 0 && append(counts, PyLong_FromSize_t(told->count));
        if (is_done) move_all(told, changes);
    }
    is_done = is_done && PyList_SetSlice(woken, 0, PyList_GET_SIZE(woken), nullptr) == 0;
    PyObject* taken = is_done        ? PyTuple_Pack(3, reinterpret_cast<PyObject*>(changes), numbers, counts)
                      : !are_settled ? Py_NewRef(Py_None)
                                     : nullptr;
    Py_XDECREF(counts);
    Py_XDECREF(numbers);
    Py_XDECREF(reinterpret_cast<PyObject*>(changes));
    return taken;
}

PyMemberDef watch_members[] = {
    PEQUOD_MEMBER(HotWatch, first, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, last, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, changes, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, stale, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, lost, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, ended, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, waker, T_OBJECT),
    PEQUOD_MEMBER(HotWatch, is_awake, T_BOOL),
    PEQUOD_LAST_MEMBER,
};

PyMemberDef waker_members[] = {
    PEQUOD_MEMBER(HotWaker, number, T_OBJECT),
    PEQUOD_MEMBER(HotWaker, woken, T_OBJECT),
    PEQUOD_MEMBER(HotWaker, begin, T_OBJECT),
    PEQUOD_LAST_MEMBER,
};

PyMethodDef functions[] = {
    {"take_runs", as_function(take_runs), METH_FASTCALL, "Take what watches were told, if that is all there is."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int tell(PyObject* watches, Piece prefix, Piece tail, PyObject* old, PyObject* value) {
    if (!watches || !PyTuple_CheckExact(watches)) return 0;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(watches); ++at) {
        if (!is_tellable(PyTuple_GET_ITEM(watches, at))) return 0;
    }
    PyObject* key = nullptr;
    bool is_told = true, has_woken = false;
    // Whom they wake may change the watches of the table: then another tuple takes the place of this one.
    Py_INCREF(watches);
    for (Py_ssize_t at = 0; is_told && at < PyTuple_GET_SIZE(watches); ++at) {
        PyObject* object = PyTuple_GET_ITEM(watches, at);
        HotWatch* watch = watch_of(object);
        if (has_woken) is_told = check_all(is_tellable(object), "whom a watch wakes leaves the others alone");
        if (!is_told || !holds(watch, prefix, tail)) continue;
        if (!key) key = concatenated(prefix, tail, {"", 0});
        is_told = key && add_change(changes_of(watch->changes), key, old, value);
        if (!is_told || watch->is_awake) continue;
        is_told = wake(watch);
        has_woken = true;
    }
    Py_DECREF(watches);
    Py_XDECREF(key);
    return is_told ? 1 : -1;
}

int add_watch_types(PyObject* module) {
    watch_type = make_record_type<HotWatch>("pequod.native._hot.HotWatch", watch_members);
    waker_type = make_record_type<HotWaker>("pequod.native._hot.HotWaker", waker_members);
    if (!watch_type || !waker_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    if (PyModule_AddObjectRef(module, "HotWatch", reinterpret_cast<PyObject*>(watch_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotWaker", reinterpret_cast<PyObject*>(waker_type));
}

}  // namespace pequod
