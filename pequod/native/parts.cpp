#include "parts.hpp"

#include <cstring>

namespace pequod {

bool refuse(const char* text) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, text);
    return false;
}

namespace {

bool read_part(PyObject* object, Part* part) {
    if (PyBytes_CheckExact(object)) {
        part->literal = Py_NewRef(object);
    } else if (object != Py_None) {
        part->width = PyLong_AsSize_t(object);
        if (PyErr_Occurred() || !part->width) return refuse("a slot has a width");
    }
    return true;
}

bool read_piece(PyObject* object, size_t part_count, MadePiece* piece) {
    if (PyBytes_CheckExact(object)) {
        piece->literal = Py_NewRef(object);
        return true;
    }
    piece->part = PyLong_AsSize_t(object);
    return !PyErr_Occurred() && piece->part < part_count ? true : refuse("there is no such part");
}

bool are_few(PyObject* tuple) {
    return PyTuple_GET_SIZE(tuple) <= Py_ssize_t(PARTS_MAX) ? true : refuse("a key has few parts");
}

}  // namespace

bool read_parts(PyObject* tuple, Part* parts, size_t* count) {
    if (!are_few(tuple)) return false;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at) {
        if (!read_part(PyTuple_GET_ITEM(tuple, at), &parts[(*count)++])) return false;
    }
    return true;
}

bool read_pieces(PyObject* tuple, size_t part_count, MadePiece* pieces, size_t* count) {
    if (!are_few(tuple)) return false;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(tuple); ++at) {
        if (!read_piece(PyTuple_GET_ITEM(tuple, at), part_count, &pieces[(*count)++])) return false;
    }
    return true;
}

PyObject* put_together(const MadePiece* pieces, size_t count, const Piece* parts) {
    const auto piece_at = [&](size_t at) {
        return pieces[at].literal ? piece_of(pieces[at].literal) : parts[pieces[at].part];
    };
    size_t size = 0;
    for (size_t at = 0; at < count; ++at) size += piece_at(at).size;
    PyObject* made = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
    if (!made) return nullptr;
    char* to = PyBytes_AS_STRING(made);
    for (size_t at = 0; at < count; ++at) {
        const Piece piece = piece_at(at);
        std::memcpy(to, piece.start, piece.size);
        to += piece.size;
    }
    return made;
}

}  // namespace pequod
