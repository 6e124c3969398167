#include "routes.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* route_type = nullptr;

namespace {

constexpr char DELIMITER = '|';

Route* route_of(PyObject* self) { return reinterpret_cast<Route*>(self); }

// Cut the bytes of a part from the front of a key; false: the key is of another pattern.
bool cut(const Part& part, Piece* rest, Piece* piece) {
    size_t size = part.width;
    if (part.literal) {
        if (!begins_with(*rest, piece_of(part.literal))) return false;
        size = piece_of(part.literal).size;
    } else if (!part.width) {
        const void* found = rest->size ? std::memchr(rest->start, DELIMITER, rest->size) : nullptr;
        size = found ? size_t(static_cast<const char*>(found) - rest->start) : rest->size;
        if (!size) return false;
    } else if (rest->size < part.width) {
        return false;
    }
    *piece = {rest->start, size};
    *rest = {rest->start + size, rest->size - size};
    return true;
}

}  // namespace

Waiting* waiting_at(const Route* route, Piece key, Match* match) {
    if (!route->frames->table.size) return nullptr;
    Piece rest = key;
    size_t frame_size = 0;
    for (size_t at = 0; at < route->part_count; ++at) {
        if (!cut(route->parts[at], &rest, &match->parts[at])) return nullptr;
        if (at < route->frame_part_count) frame_size += match->parts[at].size;
    }
    return rest.size ? nullptr : find_frame(route->frames, {key.start, frame_size});
}

PyObject* tail_of(const Route* route, const Match& match) {
    const auto piece_at = [&](size_t at) {
        const TailPiece& piece = route->tail[at];
        return piece.literal ? piece_of(piece.literal) : match.parts[piece.part];
    };
    size_t size = 0;
    for (size_t at = 0; at < route->tail_count; ++at) size += piece_at(at).size;
    PyObject* tail = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
    if (!tail) return nullptr;
    char* to = PyBytes_AS_STRING(tail);
    for (size_t at = 0; at < route->tail_count; ++at) {
        const Piece piece = piece_at(at);
        std::memcpy(to, piece.start, piece.size);
        to += piece.size;
    }
    return tail;
}

namespace {

bool refuse(const char* text) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, text);
    return false;
}

// Bytes; the width of a slot; None for a slot that ends before a delimiter.
bool read_part(PyObject* object, Part* part) {
    if (PyBytes_CheckExact(object)) {
        part->literal = Py_NewRef(object);
    } else if (object != Py_None) {
        part->width = PyLong_AsSize_t(object);
        if (PyErr_Occurred() || !part->width) return refuse("a slot has a width");
    }
    return true;
}

// Bytes, or the number of a part.
bool read_tail_piece(PyObject* object, size_t part_count, TailPiece* piece) {
    if (PyBytes_CheckExact(object)) {
        piece->literal = Py_NewRef(object);
        return true;
    }
    piece->part = PyLong_AsSize_t(object);
    return !PyErr_Occurred() && piece->part < part_count ? true : refuse("there is no such part");
}

bool read_route(Route* route, PyObject* parts, PyObject* tail) {
    for (PyObject* tuple : {parts, tail}) {
        if (PyTuple_GET_SIZE(tuple) > Py_ssize_t(Route::PARTS_MAX)) return refuse("a route has few parts");
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(parts); ++at) {
        if (!read_part(PyTuple_GET_ITEM(parts, at), &route->parts[route->part_count++])) return false;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tail); ++at) {
        PyObject* piece = PyTuple_GET_ITEM(tail, at);
        if (!read_tail_piece(piece, route->part_count, &route->tail[route->tail_count++])) return false;
    }
    return route->frame_part_count <= route->part_count ? true : refuse("a frame's key is a part of the key");
}

// Route(frames, parts, frame_part_count, tail, depth, is_check)
PyObject* route_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *frames, *parts, *tail;
    Py_ssize_t frame_part_count;
    int depth, is_check;
    if (!PyArg_ParseTuple(arguments, "O!O!nO!ip", frames_type, &frames, &PyTuple_Type, &parts, &frame_part_count,
                          &PyTuple_Type, &tail, &depth, &is_check)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    Route* route = route_of(self);
    route->frames = reinterpret_cast<Frames*>(Py_NewRef(frames));
    route->frame_part_count = size_t(frame_part_count);
    route->depth = depth;
    route->is_check = char(is_check);
    if (!read_route(route, parts, tail)) Py_CLEAR(self);
    return self;
}

void route_dealloc(PyObject* self) {
    Route* route = route_of(self);
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(reinterpret_cast<PyObject*>(route->frames));
    for (size_t at = 0; at < route->part_count; ++at) Py_XDECREF(route->parts[at].literal);
    for (size_t at = 0; at < route->tail_count; ++at) Py_XDECREF(route->tail[at].literal);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"is_followed", T_BOOL, offsetof(Route, is_followed), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("From a key that is written to those who wait for it.")},
    {Py_tp_new, reinterpret_cast<void*>(route_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(route_dealloc)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.engine._hot.Route", sizeof(Route), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

int add_route_type(PyObject* module) {
    route_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!route_type || PyModule_AddIntConstant(module, "ROUTE_PARTS_MAX", Route::PARTS_MAX) < 0) return -1;
    return PyModule_AddObjectRef(module, "Route", reinterpret_cast<PyObject*>(route_type));
}

}  // namespace pequod
