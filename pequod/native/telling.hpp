// From a changed key to those who wait for it: what `Writer.base_changed` does, where that is quick.
//
// A value is copied into all contexts that wait; a key of a check is noted in their logs, and they go stale. Of a
// record these are told the plain rows that change, and indexes have them too. Where one of the sites is Python's, or
// joins and watches follow the rows, nothing is changed here, and Python is called for all.
#pragma once

#include "engine.hpp"
#include "indexes.hpp"

namespace pequod {

// Bring up to date what depends on a key, and count it. An error is set on failure.
bool tell_readers(HotEngine* engine, PyObject* readers, const Change& change, size_t* count);

int add_telling_functions(PyObject* module);

}  // namespace pequod
