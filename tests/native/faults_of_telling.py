"""Faults in who is told of a key that is written."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_TELLING: Final = (
    Fault(
        "telling.cpp",
        "if (hot->log && PyDict_GET_SIZE(hot->log) >= engine->log_max) return false;",
        "if (hot->log && PyDict_GET_SIZE(hot->log) > engine->log_max) return false;",
        "a log may be one entry longer than its limit",
    ),
    Fault(
        "telling.cpp",
        "    if (route->is_followed && !route->tells_watches && !route->tells_joins) return false;\n",
        "",
        "joins over a watched timeline are not told of its rows",
    ),
    Fault(
        "copying.cpp",
        "const bool is_same = old && is_equal(piece_of(old), piece_of(value));",
        "const bool is_same = old;",
        "watches are not told of a value that takes the place of another",
    ),
    Fault(
        "told.hpp",
        "few_[number] : more_[number - FEW]; }",
        "few_[number] : more_[0]; }",
        "of many joins that read a key, some are told twice and others never",
    ),
    Fault(
        "copying.cpp",
        "    lose_row(hot);\n",
        "",
        "rows of records that go stay in the ledger",
    ),
    Fault(
        "telling.cpp",
        "    if (route->is_followed || route->is_check || route->is_count) Py_RETURN_FALSE;\n",
        "",
        "no watch is told of rows of records",
    ),
    Fault(
        "telling.cpp",
        "const bool counts_presence = route->is_check || route->is_count;",
        "const bool counts_presence = route->is_check;",
        "a row that gets another value is counted again",
    ),
    Fault(
        "telling.cpp",
        "    if (!is_told || !changed.for_python) return is_told;\n",
        "    return is_told;\n",
        "neither watches nor joins are told of counts",
    ),
    Fault(
        "counting.cpp",
        "PyDict_SetItem(hot->aggregate_states, tail, state) == 0 &&",
        "true &&",
        "a count is shown that the next change does not begin with",
    ),
    Fault(
        "counting.cpp",
        "count + more < 1 || ",
        "",
        "a group whose last row goes has a count of nothing",
    ),
    Fault(
        "telling.cpp",
        "told.route->is_followed ? &followers : nullptr, tail,",
        "nullptr, tail,",
        "watches over a timeline are not told of a row that goes",
    ),
    Fault(
        "telling.cpp",
        "    if (!told.waiting->context(0)->is_capped) return true;\n",
        "    return true;\n",
        "a row that goes out of a full timeline stays in it",
    ),
    Fault(
        "changes.cpp",
        "(change.is_expired ? HAS_EXPIRED : 0)",
        "0",
        "watches of many ranges take a key that has expired for one that was removed",
    ),
    Fault(
        "changes_type.cpp",
        "change.is_expired ? expired_class : change_class",
        "change_class",
        "a key that has expired looks as one that was removed",
    ),
    Fault(
        "watches.cpp",
        "if (!is_told || !holds(watch, prefix, tail)) continue;",
        "if (!is_told) continue;",
        "watches are told of rows beside their ranges",
    ),
    Fault(
        "watches.cpp",
        "!PyList_GET_SIZE(watch->lost);",
        "true;",
        "a watch that has lost rows is told of them twice",
    ),
    Fault(
        "watches.cpp",
        "->is_awake = false;",
        "->is_awake = true;",
        "a watch of many ranges that was settled once never is again",
    ),
    Fault(
        "watches.cpp",
        "if (lane->beat == changes->beat + 1 && lane->run",
        "if (lane->run",
        "a range gets the changes of another one in the next beat",
    ),
    Fault(
        "watches.cpp",
        "if (changes->count > 1 || PyList_GET_SIZE(lane->woken)) return true;",
        "return true;",
        "nobody takes what a feed was told",
    ),
    Fault(
        "changes.cpp",
        "if (changes->count && run < changes->items[changes->count - 1].run) changes->is_mixed = true;",
        "",
        "the ranges of a beat get each other's changes",
    ),
    Fault(
        "changes.cpp",
        "        changes->after_bytes -= value_size;\n",
        "",
        "changes that a watch has taken alone weigh on its feed",
    ),
    Fault(
        "copying.cpp",
        "compare(latest->last.key(latest->last.size - 1), piece_of(tail)) < 0",
        "compare(latest->last.key(latest->last.size - 1), piece_of(tail)) <= 0",
        "a watched row that is put again is there twice",
    ),
)
