#include "watches.hpp"

#include "arguments.hpp"
#include "fetch.hpp"
#include "records.hpp"

namespace pequod {

PyTypeObject* watch_type = nullptr;
PyTypeObject* lane_type = nullptr;

namespace {

HotWatch* watch_of(PyObject* object) { return reinterpret_cast<HotWatch*>(object); }
HotLane* lane_of(PyObject* object) { return reinterpret_cast<HotLane*>(object); }

// As `PyObject_TypeCheck`, which takes longer for what nearly all are: of a class whose base is the type.
bool is_of(PyObject* object, PyTypeObject* type) {
    return Py_TYPE(object)->tp_base == type || PyObject_TypeCheck(object, type);
}

bool is_lane(PyObject* object) {
    if (!object || !is_of(object, lane_type)) return false;
    const HotLane* lane = lane_of(object);
    return is_changes(lane->changes) && lane->woken && PyList_CheckExact(lane->woken) && lane->begin;
}

// It is as it should be, and has lost no rows.
bool is_tellable(PyObject* object) {
    if (!is_of(object, watch_type)) return false;
    const HotWatch* watch = watch_of(object);
    return watch->first && PyBytes_CheckExact(watch->first) && watch->last && is_bound(watch->last) &&
           (is_changes(watch->changes) || is_lane(watch->changes)) && watch->lost && PyList_CheckExact(watch->lost) &&
           !PyList_GET_SIZE(watch->lost);
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

// False: an error is set.
bool call(PyObject* called) {
    Py_INCREF(called);
    PyObject* answer = PyObject_CallNoArgs(called);
    Py_DECREF(called);
    Py_XDECREF(answer);
    return answer;
}

// Its run among the changes, which begins where it has none; false: an error is set.
bool find_run(HotLane* lane) {
    Changes* changes = changes_of(lane->changes);
    if (lane->beat == changes->beat + 1 && lane->run < changes->run_count) return true;
    if (!begin_run(changes, lane->number)) return false;
    lane->beat = changes->beat + 1;
    lane->run = changes->run_count - 1;
    return true;
}

// Tell a watch that has a lane; false: an error is set.
bool tell_lane(HotLane* lane, Piece prefix, Piece tail, PyObject* old, PyObject* value, bool* has_called) {
    Changes* changes = changes_of(lane->changes);
    if (!find_run(lane) || !add_change(changes, lane->run, prefix, tail, old, value)) return false;
    // Who is woken already has called.
    if (changes->count > 1 || PyList_GET_SIZE(lane->woken)) return true;
    *has_called = true;
    return call(lane->begin);
}

// Tell a watch of its own; false: an error is set.
bool tell_alone(HotWatch* watch, Piece prefix, Piece tail, PyObject* old, PyObject* value, bool* has_called) {
    Changes* changes = changes_of(watch->changes);
    if (!changes->run_count && !begin_run(changes, 0)) return false;
    if (!add_change(changes, changes->run_count - 1, prefix, tail, old, value)) return false;
    if (watch->is_awake) return true;
    watch->is_awake = true;
    *has_called = true;
    return check_all(watch->waker, "a watch has somebody to wake") && call(watch->waker);
}

// Whether what these watches were told is all that there is to know of each; -1: an error is set.
int are_all_settled(PyObject* watches, PyObject* woken) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(woken); ++at) {
        PyObject* number = PyList_GET_ITEM(woken, at);
        if (!check_all(PyLong_CheckExact(number), "watches are named by numbers")) return -1;
        PyObject* watch = PyDict_GetItemWithError(watches, number);
        if (!watch || !is_settled(watch)) return PyErr_Occurred() ? -1 : 0;
    }
    return 1;
}

// take_runs(watches, woken, changes): see the Python function of this name.
PyObject* take_runs(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (!check_count("take_runs", count, 3)) return nullptr;
    PyObject *watches = arguments[0], *woken = arguments[1], *changes = arguments[2];
    if (!check_all(PyDict_CheckExact(watches) && PyList_CheckExact(woken) && is_changes(changes),
                   "take_runs takes watches, numbers and changes")) {
        return nullptr;
    }
    // Before the look: what makes objects may run the garbage collector, and that anything.
    Changes* taken = new_changes();
    const int are_settled = taken ? are_all_settled(watches, woken) : -1;
    if (are_settled <= 0 || !move_all(changes_of(changes), taken)) {
        Py_XDECREF(reinterpret_cast<PyObject*>(taken));
        return are_settled ? nullptr : Py_NewRef(Py_None);
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(woken); ++at) {
        watch_of(PyDict_GetItemWithError(watches, PyList_GET_ITEM(woken, at)))->is_awake = false;
    }
    if (PyList_SetSlice(woken, 0, PyList_GET_SIZE(woken), nullptr) < 0) Py_CLEAR(taken);
    return reinterpret_cast<PyObject*>(taken);
}

// Its lane, with a run; null: an error is set.
HotLane* sound_lane(PyObject* self) {
    if (!check_all(is_lane(self), "a lane is one of changes")) return nullptr;
    return find_run(lane_of(self)) ? lane_of(self) : nullptr;
}

// append(change)
PyObject* lane_append(PyObject* self, PyObject* change) {
    const HotLane* lane = sound_lane(self);
    if (!lane || !add_python_change(changes_of(lane->changes), lane->run, change)) return nullptr;
    Py_RETURN_NONE;
}

// tell(key, old, new)
PyObject* lane_tell(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    const HotLane* lane = sound_lane(self);
    if (!lane || !add_told(changes_of(lane->changes), lane->run, arguments, count)) return nullptr;
    Py_RETURN_NONE;
}

// take(): the changes of this watch, as a list; those of the others stay.
PyObject* lane_take(PyObject* self, PyObject*) {
    HotLane* lane = sound_lane(self);
    PyObject* list = lane ? PyList_New(0) : nullptr;
    Changes* changes = lane ? changes_of(lane->changes) : nullptr;
    for (size_t at = 0; list && at < changes->count; ++at) {
        if (changes->items[at].run == lane->run && !append(list, change_at(changes, at))) Py_CLEAR(list);
    }
    if (list && lane->run < changes->run_count) take_out(changes, lane->run);
    return list;
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

PyMemberDef lane_members[] = {
    PEQUOD_MEMBER(HotLane, changes, T_OBJECT),
    PEQUOD_MEMBER(HotLane, woken, T_OBJECT),
    PEQUOD_MEMBER(HotLane, begin, T_OBJECT),
    PEQUOD_MEMBER(HotLane, number, T_UINT),
    PEQUOD_LAST_MEMBER,
};

PyMethodDef lane_methods[] = {
    {"append", lane_append, METH_O, "Add a change of this watch."},
    {"tell", as_function(lane_tell), METH_FASTCALL, "Add a change by its key and values."},
    {"take", lane_take, METH_NOARGS, "Return the changes of this watch, and keep none of them."},
    {nullptr, nullptr, 0, nullptr},
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
    bool is_told = true, has_called = false;
    // Whom they wake may change the watches of the table: then another tuple takes the place of this one.
    Py_INCREF(watches);
    for (Py_ssize_t at = 0; is_told && at < PyTuple_GET_SIZE(watches); ++at) {
        PyObject* object = PyTuple_GET_ITEM(watches, at);
        HotWatch* watch = watch_of(object);
        if (has_called) is_told = check_all(is_tellable(object), "whom a watch wakes leaves the others alone");
        if (!is_told || !holds(watch, prefix, tail)) continue;
        is_told = is_changes(watch->changes)
                      ? tell_alone(watch, prefix, tail, old, value, &has_called)
                      : tell_lane(lane_of(watch->changes), prefix, tail, old, value, &has_called);
    }
    Py_DECREF(watches);
    return is_told ? 1 : -1;
}

void look_ahead(PyObject* watches, unsigned step) {
    if (!watches || !PyTuple_CheckExact(watches) || !PyTuple_GET_SIZE(watches)) return;
    PyObject* object = PyTuple_GET_ITEM(watches, 0);
    if (step == 0) fetch_to_write(object);
    if (step == 0 || !is_of(object, watch_type)) return;
    const HotWatch* watch = watch_of(object);
    if (step > 1) return;
    fetch(&watch->is_awake);
    for (PyObject* member : {watch->first, watch->last, watch->changes, watch->lost}) fetch(member);
}

int add_watch_types(PyObject* module) {
    watch_type = make_record_type<HotWatch>("pequod.native._hot.HotWatch", watch_members);
    lane_type = make_record_type<HotLane>("pequod.native._hot.HotLane", lane_members, lane_methods);
    if (!watch_type || !lane_type || PyModule_AddFunctions(module, functions) < 0) return -1;
    if (PyModule_AddObjectRef(module, "HotWatch", reinterpret_cast<PyObject*>(watch_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "HotLane", reinterpret_cast<PyObject*>(lane_type));
}

}  // namespace pequod
