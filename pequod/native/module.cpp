// The native core: the structures and operations of the engine that its time goes into, and none of its rules.
//
// Each has a Python class or function of the same name, which is the reference and the fallback. The environment
// variable PEQUOD_PURE keeps a process on these.
#include "batch.hpp"
#include "collect.hpp"
#include "columns.hpp"
#include "engine.hpp"
#include "groups.hpp"
#include "lens.hpp"
#include "numerals.hpp"
#include "routes.hpp"
#include "timeline.hpp"

#include <cstdlib>

namespace {

// That of pequod/native/__init__.py, which takes no other.
constexpr int INTERFACE = 15;

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", "The native core of the engine.", -1, nullptr, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__hot() {
    const char* pure = std::getenv("PEQUOD_PURE");
    if (pure && *pure && *pure != '0') {
        PyErr_SetString(PyExc_ImportError, "PEQUOD_PURE is set");
        return nullptr;
    }
    PyObject* module = PyModule_Create(&definition);
    for (const auto add : {pequod::add_rows_type, pequod::add_group_type, pequod::add_table_types, pequod::add_context_types, pequod::add_frame_types,
                           pequod::add_route_type, pequod::add_timeline_functions, pequod::add_collect_types,
                           pequod::add_lens_type, pequod::add_engine_type, pequod::add_batch_type,
                           pequod::add_column_functions, pequod::add_numeral_functions}) {
        if (module && add(module) < 0) Py_CLEAR(module);
    }
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) Py_CLEAR(module);
    return module;
}
