#include "contexts.hpp"

namespace pequod {

int covers(Hot* hot, PyObject* tail) {
    const Piece wanted = piece_of(tail);
    if (compare(wanted, piece_of(hot->lower)) < 0) return 0;
    if (hot->upper != Py_None && compare(wanted, piece_of(hot->upper)) >= 0) return 0;
    if (hot->is_whole) return 1;
    // Several ranges are Python's to look through.
    PyObject* context = reinterpret_cast<PyObject*>(hot);
    Py_INCREF(context);
    PyObject* found = PyObject_CallMethod(context, "covers", "O", tail);
    Py_DECREF(context);
    const int is_covered = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return is_covered;
}

}  // namespace pequod
