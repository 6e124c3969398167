#include "routes.hpp"

#include "records.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod {

PyTypeObject* route_type = nullptr;
PyTypeObject* site_type = nullptr;

namespace {

Route* route_of(PyObject* self) { return reinterpret_cast<Route*>(self); }

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
    return put_together(route->tail, route->tail_count, match.parts);
}

namespace {

bool read_route(Route* route, PyObject* parts, PyObject* tail) {
    if (!read_parts(parts, route->parts, &route->part_count)) return false;
    if (!read_pieces(tail, route->part_count, route->tail, &route->tail_count)) return false;
    return route->frame_part_count <= route->part_count ? true : refuse("a frame's key is a part of the key");
}

// Route(frames, parts, frame_part_count, tail, depth, is_check, is_count)
PyObject* route_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *frames, *parts, *tail;
    Py_ssize_t frame_part_count;
    int depth, is_check, is_count;
    if (!PyArg_ParseTuple(arguments, "O!O!nO!ipp", frames_type, &frames, &PyTuple_Type, &parts, &frame_part_count,
                          &PyTuple_Type, &tail, &depth, &is_check, &is_count)) {
        return nullptr;
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    Route* route = route_of(self);
    route->frames = reinterpret_cast<Frames*>(Py_NewRef(frames));
    route->frame_part_count = size_t(frame_part_count);
    route->depth = depth;
    route->is_check = char(is_check);
    route->is_count = char(is_count);
    if (!read_route(route, parts, tail)) Py_CLEAR(self);
    return self;
}

void route_dealloc(PyObject* self) {
    Route* route = route_of(self);
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(reinterpret_cast<PyObject*>(route->frames));
    clear_literals(route->parts, route->part_count);
    clear_literals(route->tail, route->tail_count);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef members[] = {
    {"is_followed", T_BOOL, offsetof(Route, is_followed), 0, nullptr},
    {"tells_watches", T_BOOL, offsetof(Route, tells_watches), 0, nullptr},
    {"tells_joins", T_BOOL, offsetof(Route, tells_joins), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("From a key that is written to those who wait for it.")},
    {Py_tp_new, reinterpret_cast<void*>(route_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(route_dealloc)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Route", sizeof(Route), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};

PyMemberDef site_members[] = {PEQUOD_MEMBER(HotSite, route, T_OBJECT), PEQUOD_MEMBER(HotSite, told, T_OBJECT),
                              PEQUOD_LAST_MEMBER};

}  // namespace

int add_route_type(PyObject* module) {
    route_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!route_type || PyModule_AddIntConstant(module, "PARTS_MAX", PARTS_MAX) < 0) return -1;
    site_type = make_record_type<HotSite>("pequod.native._hot.HotSite", site_members);
    if (!site_type || PyModule_AddObjectRef(module, "HotSite", reinterpret_cast<PyObject*>(site_type)) < 0) return -1;
    return PyModule_AddObjectRef(module, "Route", reinterpret_cast<PyObject*>(route_type));
}

}  // namespace pequod
