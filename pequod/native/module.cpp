// The native core: the structures and operations of the engine that its time goes into, and none of its rules.
//
// Each has a Python class or function of the same name, which is the reference and the fallback. The environment
// variable PEQUOD_PURE keeps a process on these.
#include "batch.hpp"
#include "changes.hpp"
#include "collect.hpp"
#include "columns.hpp"
#include "contents.hpp"
#include "deadlines.hpp"
#include "engine.hpp"
#include "groups.hpp"
#include "hash.hpp"
#include "http2/client.hpp"
#include "http2/hot_calls.hpp"
#include "http2/owners.hpp"
#include "http2/relay.hpp"
#include "indexes.hpp"
#include "kernel.hpp"
#include "kinds.hpp"
#include "lens.hpp"
#include "numerals.hpp"
#include "ranks.hpp"
#include "routes.hpp"
#include "row_lists.hpp"
#include "tails.hpp"
#include "tally.hpp"
#include "telling.hpp"
#include "timeline.hpp"
#include "watches.hpp"

#include <cstdlib>
#include <cstring>

namespace pequod {

KindRow KIND_ROWS[256] = {};

}  // namespace pequod

namespace {

// That of pequod/native/__init__.py, which takes no other.
constexpr int INTERFACE = 28;

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_hot", "The native core of the engine.", -1, nullptr, nullptr, nullptr, nullptr, nullptr,
};

// use_kinds(rows): go by these kinds of commands, five bytes for each byte that may stand for one.
PyObject* use_kinds(PyObject*, PyObject* rows) {
    if (!PyBytes_Check(rows) || size_t(PyBytes_GET_SIZE(rows)) != sizeof(pequod::KIND_ROWS)) {
        PyErr_SetString(PyExc_TypeError, "use_kinds takes the rows of the table of kinds");
        return nullptr;
    }
    std::memcpy(pequod::KIND_ROWS, PyBytes_AS_STRING(rows), sizeof(pequod::KIND_ROWS));
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"use_kinds", use_kinds, METH_O, "Go by these kinds of commands from now on."},
    {nullptr, nullptr, 0, nullptr},
};

int add_kinds(PyObject* module) { return PyModule_AddFunctions(module, functions); }

}  // namespace

PyMODINIT_FUNC PyInit__hot() {
    const char* pure = std::getenv("PEQUOD_PURE");
    if (pure && *pure && *pure != '0') {
        PyErr_SetString(PyExc_ImportError, "PEQUOD_PURE is set");
        return nullptr;
    }
    PyObject* module = PyModule_Create(&definition);
    for (const auto add : {pequod::add_hash,
                           pequod::add_rows_type,
                           pequod::add_row_lists,
                           pequod::add_group_type,
                           pequod::add_table_types,
                           pequod::add_context_types,
                           pequod::add_deadlines_type,
                           pequod::add_ends_type,
                           pequod::add_frame_types,
                           pequod::add_changes_type,
                           pequod::add_watch_types,
                           pequod::add_route_type,
                           pequod::add_timeline_functions,
                           pequod::add_kernel_type,
                           pequod::add_collect_functions,
                           pequod::add_lens_type,
                           pequod::add_index_types,
                           pequod::add_telling_functions,
                           pequod::add_engine_type,
                           pequod::add_batch_type,
                           pequod::add_column_functions,
                           pequod::add_content_functions,
                           pequod::add_tails_type,
                           pequod::add_tally_function,
                           pequod::add_numeral_functions,
                           pequod::add_rank_functions,
                           pequod::http2::add_session_type,
                           pequod::http2::add_client_type,
                           pequod::http2::add_hot_type,
                           pequod::http2::add_lease_type,
                           pequod::http2::add_owners_type,
                           pequod::http2::add_link_type,
                           pequod::http2::add_relay_end_type,
                           add_kinds}) {
        if (module && add(module) < 0) Py_CLEAR(module);
    }
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) Py_CLEAR(module);
    return module;
}
