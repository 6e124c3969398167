"""Faults in what rows of a lake say."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_CONTENTS: Final = (
    Fault(
        "contents.cpp",
        "at < stop; at += 8, place += PLACE",
        "at < stop; at += 8",
        "texts with the same words in another order have the same hash",
    ),
    Fault(
        "contents.cpp",
        "word_at(start + size - 8) >> (64 - 8 * left)",
        "word_at(start + size - 8) >> (8 * left)",
        "the last word of a text has the bytes before it",
    ),
    Fault(
        "contents.cpp",
        "        if (given.is_null(row)) continue;\n",
        "",
        "a null has the hash of a text",
    ),
    Fault(
        "contents.cpp",
        "        if (ends[row + 1] < ends[row]) return false;\n",
        "",
        "a text that ends before it begins is read",
    ),
    Fault(
        "contents.cpp",
        "size_t(ends[count]) > size",
        "size_t(ends[count]) > size + 1",
        "a text is read beyond the end of the data",
    ),
    Fault(
        "contents.cpp",
        "given.values.len != given.sums.len",
        "given.values.len < given.sums.len",
        "numbers of more rows than there are pass",
    ),
)
