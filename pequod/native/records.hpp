// Types whose instances are a C++ record with references to Python objects, for Python classes to inherit from.
//
// A record has a method `each` that calls a function with each reference.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>

namespace pequod {

template <typename Record>
int traverse_record(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return reinterpret_cast<Record*>(self)->each([=](PyObject** member) { return *member ? visit(*member, arg) : 0; });
}

template <typename Record>
int clear_record(PyObject* self) {
    return reinterpret_cast<Record*>(self)->each([](PyObject** member) {
        Py_CLEAR(*member);
        return 0;
    });
}

template <typename Record>
void end_record(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear_record<Record>(self);
    type->tp_free(self);
    Py_DECREF(type);
}

inline PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};

template <typename Record>
PyTypeObject* make_record_type(const char* name, PyMemberDef* members, PyMethodDef* methods = no_methods) {
    PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
        {Py_tp_dealloc, reinterpret_cast<void*>(end_record<Record>)},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse_record<Record>)},
        {Py_tp_clear, reinterpret_cast<void*>(clear_record<Record>)},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {0, nullptr},
    };
    PyType_Spec spec = {name, int(sizeof(Record)), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
                        slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

// An attribute of a record, as `PyMemberDef` has it.
#define PEQUOD_MEMBER(record, name, type) {#name, type, offsetof(record, name), 0, nullptr}
#define PEQUOD_LAST_MEMBER {nullptr, 0, 0, 0, nullptr}

}  // namespace pequod
