#include "owners.hpp"

#include "../arguments.hpp"

#include <cstring>

namespace pequod::http2 {

namespace {

Owners* owners_of(PyObject* object) { return reinterpret_cast<Owners*>(object); }

// The slots of a key's group, each with its bar.
Group cut(Piece key, long level) {
    size_t end = 0;
    for (long slot = 0; slot <= level; ++slot) {
        const void* bar = std::memchr(key.start + end, '|', key.size - end);
        if (!bar) return {key, !key.size || key.start[key.size - 1] != '|'};
        end = size_t(static_cast<const char*>(bar) - key.start) + 1;
    }
    return {{key.start, end}, false};
}

// Whether an object is a tuple of pairs whose first parts are bytes, of so many at the most, and the others numbers.
bool are_pairs(PyObject* object, PyTypeObject* number, Py_ssize_t most) {
    if (!PyTuple_CheckExact(object)) return false;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(object); ++at) {
        PyObject* pair = PyTuple_GET_ITEM(object, at);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
        PyObject* bytes = PyTuple_GET_ITEM(pair, 0);
        if (!PyBytes_CheckExact(bytes) || PyBytes_GET_SIZE(bytes) > most) return false;
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(pair, 1), number)) return false;
    }
    return true;
}

bool are_servers(PyObject* object) {
    if (!are_pairs(object, &PyFloat_Type, KEY_BYTES_MAX) || !PyTuple_GET_SIZE(object)) return false;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(object); ++at) {
        if (!PyBytes_GET_SIZE(PyTuple_GET_ITEM(PyTuple_GET_ITEM(object, at), 0))) return false;
    }
    return true;
}

PyObject* owners_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *servers, *placements, *spreads;
    if (!PyArg_ParseTuple(arguments, "OOO", &servers, &placements, &spreads)) return nullptr;
    if (!are_servers(servers) || !are_pairs(placements, &PyLong_Type, PY_SSIZE_T_MAX) ||
        !are_pairs(spreads, &PyLong_Type, PY_SSIZE_T_MAX) ||
        PyTuple_GET_SIZE(spreads) != PyTuple_GET_SIZE(placements)) {
        PyErr_SetString(PyExc_ValueError, "owners are of servers, with ids of 1 to 64 bytes, and placements");
        return nullptr;
    }
    PyObject* object = type->tp_alloc(type, 0);
    if (!object) return nullptr;
    Owners* self = owners_of(object);
    self->servers = Py_NewRef(servers);
    self->placements = Py_NewRef(placements);
    self->spreads = Py_NewRef(spreads);
    const size_t padded = lanes_count_of(self->server_count()) * RANK_LANES;
    self->keyed = static_cast<uint64_t*>(PyMem_Calloc(padded * HASH_WORDS, sizeof(uint64_t)));
    self->hashes = static_cast<uint64_t*>(PyMem_Calloc(padded, sizeof(uint64_t)));
    self->scores = static_cast<double*>(PyMem_Calloc(padded, sizeof(double)));
    if (!self->keyed || !self->hashes || !self->scores) return Py_DECREF(object), PyErr_NoMemory();
    for (size_t at = 0; at < self->server_count(); ++at) {
        const Piece id = self->id_at(at);
        key_by(self->keyed, at, id.start, id.size);
    }
    return object;
}

void owners_dealloc(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    Owners* self = owners_of(object);
    Py_XDECREF(self->servers);
    Py_XDECREF(self->placements);
    Py_XDECREF(self->spreads);
    PyMem_Free(self->keyed);
    PyMem_Free(self->hashes);
    PyMem_Free(self->scores);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* owners_group_of(PyObject* object, PyObject* key) {
    if (!check_all(PyBytes_CheckExact(key), "a key is bytes")) return nullptr;
    const Group group = owners_of(object)->group_of(piece_of(key));
    return concatenated(group.start, {"|", size_t(group.has_bar)}, {"", 0});
}

PyObject* owners_owner_of(PyObject* object, PyObject* key) {
    if (!check_all(PyBytes_CheckExact(key), "a key is bytes")) return nullptr;
    return PyLong_FromSsize_t(owners_of(object)->owner_of(piece_of(key)));
}

PyObject* owners_reader_of(PyObject* object, PyObject* arguments) {
    PyObject* key;
    Py_ssize_t own;
    if (!PyArg_ParseTuple(arguments, "Sn", &key, &own)) return nullptr;
    if (own < 0 || size_t(own) >= owners_of(object)->server_count()) {
        PyErr_SetString(PyExc_IndexError, "there is no such server");
        return nullptr;
    }
    return PyLong_FromSsize_t(owners_of(object)->reader_of(piece_of(key), own));
}

PyMethodDef methods[] = {
    {"group_of", owners_group_of, METH_O, nullptr},
    {"owner_of", owners_owner_of, METH_O, nullptr},
    {"reader_of", owners_reader_of, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(owners_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(owners_dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.Owners", sizeof(Owners), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* owners_type = nullptr;

Py_ssize_t Owners::placement_of(Piece key) const {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(placements); ++at) {
        if (begins_with(key, piece_of(PyTuple_GET_ITEM(PyTuple_GET_ITEM(placements, at), 0)))) return at;
    }
    return -1;
}

Group Owners::group_of(Piece key) const {
    const Py_ssize_t at = placement_of(key);
    if (at < 0) return cut(key, 1);
    PyObject* pair = PyTuple_GET_ITEM(placements, at);
    const Piece prefix = piece_of(PyTuple_GET_ITEM(pair, 0));
    const Group group = cut(key, PyLong_AsLong(PyTuple_GET_ITEM(pair, 1)));
    return group.start.size + group.has_bar < prefix.size ? Group{prefix, false} : group;
}

Piece Owners::ranked(Piece key, char* text) const {
    const Group group = group_of(key);
    const size_t size = group.start.size + group.has_bar;
    if (size > BLOCK_BYTES) return {text, 0};
    std::memcpy(text, group.start.start, group.start.size);
    text[size - 1] = '|';  // as all groups end
    hash_group(keyed, lanes_count_of(server_count()), text, size, hashes);
    for (size_t at = 0; at < server_count(); ++at) {
        const double weight = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(PyTuple_GET_ITEM(servers, Py_ssize_t(at)), 1));
        scores[at] = score_of(hashes[at], weight);
    }
    return {text, size};
}

size_t Owners::place_of(size_t server) const {
    size_t place = 0;
    for (size_t at = 0; at < server_count(); ++at) place += is_before(at, server);
    return place;
}

size_t Owners::first() const {
    size_t best = 0;
    for (size_t at = 1; at < server_count(); ++at) best = is_before(at, best) ? at : best;
    return best;
}

Py_ssize_t Owners::owner_of(Piece key) const {
    char text[BLOCK_BYTES];
    return ranked(key, text).size ? Py_ssize_t(first()) : -1;
}

Py_ssize_t Owners::reader_of(Piece key, Py_ssize_t own) const {
    char text[BLOCK_BYTES];
    const Piece group = ranked(key, text);
    if (!group.size) return -1;
    // That of the group: a key without a bar may be of one whose placement has it.
    const Py_ssize_t placement = placement_of(group);
    const size_t spread =
        placement < 0 ? 1 : PyLong_AsSize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(spreads, placement), 1));
    if (spread <= 1) return Py_ssize_t(first());
    // Those that share the reads find themselves.
    const size_t place = place_of(size_t(own)) % spread;
    size_t at = 0;
    while (place_of(at) != place) ++at;
    return Py_ssize_t(at);
}

int add_owners_type(PyObject* module) {
    owners_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return owners_type ? PyModule_AddObjectRef(module, "Owners", reinterpret_cast<PyObject*>(owners_type)) : -1;
}

}  // namespace pequod::http2
