#include "lease.hpp"

#include <structmember.h>

#include <cstddef>

namespace pequod::http2 {

PyTypeObject* lease_type = nullptr;

namespace {

PyMemberDef members[] = {
    {"commands", T_LONGLONG, offsetof(Lease, commands), 0, nullptr},
    {"keys", T_LONGLONG, offsetof(Lease, keys), 0, nullptr},
    {"bytes", T_LONGLONG, offsetof(Lease, bytes), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
    {Py_tp_members, members},
    {0, nullptr},
};
PyType_Spec spec = {"pequod.native._hot.Lease", sizeof(Lease), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_lease_type(PyObject* module) {
    lease_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return lease_type ? PyModule_AddObjectRef(module, "Lease", reinterpret_cast<PyObject*>(lease_type)) : -1;
}

}  // namespace pequod::http2
