// How rows come to share their tails.
#include "tails.hpp"

#include "arguments.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

namespace {

PyTypeObject* tails_type = nullptr;

Tails* tails_of(PyObject* self) { return reinterpret_cast<Tails*>(self); }

uint32_t short_hash(PyObject* tail) { return uint32_t(hash_of(piece_of(tail))); }

// The object for a tail that one row more has, borrowed; null: an error is set.
PyObject* share_one(Tails* tails, PyObject* tail) {
    const uint32_t hash = short_hash(tail);
    TailPlace* place = tails->table.find(hash, piece_of(tail));
    if (!place) {
        place = tails->table.room_for(hash, piece_of(tail));
        if (!place) return nullptr;
        *place = {Py_NewRef(tail), hash, 0};
        tails->tail_bytes += PyBytes_GET_SIZE(tail);
    }
    ++place->row_count;
    return place->tail;
}

// One row less has a tail; false: none had it, an error is set.
bool release_one(Tails* tails, PyObject* tail) {
    TailPlace* place = tails->table.find(short_hash(tail), piece_of(tail));
    if (!place) {
        PyErr_SetObject(PyExc_KeyError, tail);
        return false;
    }
    if (--place->row_count) return true;
    PyObject* gone = place->tail;
    tails->tail_bytes -= PyBytes_GET_SIZE(gone);
    tails->table.free(place);
    Py_DECREF(gone);
    return true;
}

bool check_tails(PyObject* tails) { return check_all(is_bytes_list(tails), "tails are a list of bytes"); }

// share(tails): the objects for them, in a new list.
PyObject* tails_share(PyObject* self, PyObject* tails) {
    if (!check_tails(tails)) return nullptr;
    const Py_ssize_t count = PyList_GET_SIZE(tails);
    PyObject* own = PyList_New(count);
    for (Py_ssize_t at = 0; own && at < count; ++at) {
        PyObject* tail = share_one(tails_of(self), PyList_GET_ITEM(tails, at));
        if (tail) {
            PyList_SET_ITEM(own, at, Py_NewRef(tail));
            continue;
        }
        // No memory: none of these rows has come.
        while (at--) release_one(tails_of(self), PyList_GET_ITEM(tails, at));
        Py_CLEAR(own);
    }
    return own;
}

// release(tails): one row less has each of them.
PyObject* tails_release(PyObject* self, PyObject* tails) {
    if (!check_tails(tails)) return nullptr;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(tails); ++at) {
        if (!release_one(tails_of(self), PyList_GET_ITEM(tails, at))) return nullptr;
    }
    Py_RETURN_NONE;
}

// row_count(tail): how many rows have it.
PyObject* tails_row_count(PyObject* self, PyObject* tail) {
    if (!check_all(PyBytes_CheckExact(tail), "tails are bytes")) return nullptr;
    const TailPlace* place = tails_of(self)->table.find(short_hash(tail), piece_of(tail));
    return PyLong_FromUnsignedLong(place ? place->row_count : 0);
}

Py_ssize_t tails_length(PyObject* self) { return Py_ssize_t(tails_of(self)->table.size); }

void dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    tails_of(self)->table.clear([](const TailPlace& place) { Py_DECREF(place.tail); });
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"share", tails_share, METH_O, "Return the objects for tails, each of which one row more has."},
    {"release", tails_release, METH_O, "Note that one row less has each of these tails."},
    {"row_count", tails_row_count, METH_O, "Return how many rows have a tail."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"tail_bytes", T_LONGLONG, offsetof(Tails, tail_bytes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Tails that rows share; see the Python class of this name.")},
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_sq_length, reinterpret_cast<void*>(tails_length)},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Tails", sizeof(Tails), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

int add_tails_type(PyObject* module) {
    tails_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return tails_type ? PyModule_AddObjectRef(module, "Tails", reinterpret_cast<PyObject*>(tails_type)) : -1;
}

}  // namespace pequod
