"""Faults in what rows share their tails by, and in what looks at tails before rows are told."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_TAILS: Final = (
    Fault(
        "tails.cpp",
        "    ++place->row_count;\n",
        "    if (place->row_count < 2) ++place->row_count;\n",
        "a tail goes while rows of other contexts have it",
    ),
    Fault(
        "tails.cpp",
        "    tails->tail_bytes -= PyBytes_GET_SIZE(gone);\n",
        "",
        "tails that are gone stay in the ledger",
    ),
    Fault(
        "tails.cpp",
        "PyList_SET_ITEM(own, at, Py_NewRef(tail));",
        "PyList_SET_ITEM(own, at, Py_NewRef(PyList_GET_ITEM(tails, at)));",
        "each row has a tail of its own, which the ledger does not have",
    ),
    Fault(
        "telling.cpp",
        "int is_told = is_capped ? is_beyond_all(told.waiting, tail) : 1;",
        "int is_told = is_capped ? is_beyond_all(told.waiting, tail) | 1 : 1;",
        "where the best rows of records are kept, no spare row takes the place of one that goes",
    ),
    Fault(
        "timeline.cpp",
        "            if (rest.size == width) return true;\n",
        "            if (rest.size >= width) return true;\n",
        "a timeline that keeps its last rows counts posts whose keys go on behind their time",
    ),
)
