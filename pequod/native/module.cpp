// The native core: the structures and operations of the engine that its time goes into, and none of its rules.
//
// Each has a Python class or function of the same name, which is the reference and the fallback. The environment
// variable PEQUOD_PURE keeps a process on these.
#include "batch.hpp"
#include "collect.hpp"
#include "columns.hpp"
#include "engine.hpp"
#include "groups.hpp"
#include "hash.hpp"
#include "http2/session.hpp"
#include "kinds.hpp"
#include "lens.hpp"
#include "numerals.hpp"
#include "routes.hpp"
#include "tally.hpp"
#include "timeline.hpp"

#include <cstdlib>

namespace {

// That of pequod/native/__init__.py, which takes no other.
constexpr int INTERFACE = 17;

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", "The native core of the engine.", -1, nullptr, nullptr, nullptr, nullptr, nullptr,
};

// KINDS: the table of kinds, for the test that compares it with Python's.
int add_kinds(PyObject* module) {
    PyObject* rows = PyTuple_New(Py_ssize_t(std::size(pequod::KIND_ROWS)) - 1);
    for (size_t at = 1; rows && at < std::size(pequod::KIND_ROWS); ++at) {
        const pequod::KindRow& kind = pequod::KIND_ROWS[at];
        PyObject* row = Py_BuildValue("(iiiOOi)", int(at), kind.argument_count, kind.number_count,
                                      kind.is_of_range ? Py_True : Py_False, kind.is_write ? Py_True : Py_False,
                                      int(kind.gives));
        if (row) {
            PyTuple_SET_ITEM(rows, Py_ssize_t(at) - 1, row);
        } else {
            Py_CLEAR(rows);
        }
    }
    const int added = rows ? PyModule_AddObjectRef(module, "KINDS", rows) : -1;
    Py_XDECREF(rows);
    return added;
}

}  // namespace

PyMODINIT_FUNC PyInit__hot() {
    const char* pure = std::getenv("PEQUOD_PURE");
    if (pure && *pure && *pure != '0') {
        PyErr_SetString(PyExc_ImportError, "PEQUOD_PURE is set");
        return nullptr;
    }
    PyObject* module = PyModule_Create(&definition);
    for (const auto add : {pequod::add_hash, pequod::add_rows_type, pequod::add_group_type, pequod::add_table_types,
                           pequod::add_context_types, pequod::add_frame_types, pequod::add_route_type,
                           pequod::add_timeline_functions, pequod::add_collect_types, pequod::add_lens_type,
                           pequod::add_engine_type, pequod::add_batch_type, pequod::add_column_functions,
                           pequod::add_tally_function, pequod::add_numeral_functions, pequod::http2::add_session_type,
                           add_kinds}) {
        if (module && add(module) < 0) Py_CLEAR(module);
    }
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) Py_CLEAR(module);
    return module;
}
