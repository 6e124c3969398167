#include "kernel.hpp"

#include "arguments.hpp"
#include "records.hpp"

namespace pequod {

PyTypeObject* kernel_type = nullptr;

namespace {

PyObject* kernel_new(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    PyObject *selecting, *copied, *checks, *copies, *before, *after, *ending;
    Py_ssize_t bound_width, tail_width;
    long long copied_cut;
    static const char* keywords[] = {"selecting", "copied",     "checks", "copies",     "before", "bound_width",
                                     "after",     "tail_width", "ending", "copied_cut", nullptr};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!O!O!O!SnSnO!L", const_cast<char**>(keywords), table_type,
                                     &selecting, table_type, &copied, frames_type, &checks, frames_type, &copies,
                                     &before, &bound_width, &after, &tail_width, &PyTuple_Type, &ending, &copied_cut)) {
        return nullptr;
    }
    if (!check_all(is_template(ending) && tail_width >= 0, "an ending is bytes, and None for what is bound"))
        return nullptr;
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    Kernel* kernel = kernel_of(self);
    PyObject* given[] = {selecting, copied, checks, copies, before, after, ending};
    size_t at = 0;
    kernel->each([&](PyObject** member) {
        *member = Py_NewRef(given[at++]);
        return 0;
    });
    kernel->bound_width = bound_width;
    kernel->tail_width = tail_width;
    kernel->copied_cut = copied_cut;
    return self;
}

PyMemberDef members[] = {PEQUOD_MEMBER(Kernel, is_quiet, T_BOOL), PEQUOD_LAST_MEMBER};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("How a plan's kernel reads its two sources.")},
    {Py_tp_new, reinterpret_cast<void*>(kernel_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(end_record<Kernel>)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_record<Kernel>)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_record<Kernel>)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"pequod.native._hot.Kernel", sizeof(Kernel), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

int add_kernel_type(PyObject* module) {
    kernel_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return kernel_type ? PyModule_AddObjectRef(module, "Kernel", reinterpret_cast<PyObject*>(kernel_type)) : -1;
}

}  // namespace pequod
