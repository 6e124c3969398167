"""Mutations are small changes of what runs: of each kind, and of no comment, text or declaration."""

from __future__ import annotations

import ast

from tests.mutations import of_cpp, of_python
from tests.mutations.places import ENGINE, NATIVE, ROOT

CPP = """\
#include <a.h>  // 1 + 1
template <int N = 1>
bool found(const int* at, int last) {
    const char* text = "a < b";
    ++counted;
    note(at);
    if (!at) return false;
    while (at < last && *at != 7) at += 1;
    return true;
}
"""
PYTHON = '''\
"""A text with 1 + 1."""


def found(at: int = 0) -> bool:
    """Return whether it is there."""
    assert at > 1
    note(at)
    if at is None or at < 7:
        raise ValueError(f"{at + 1}")
    return True
'''


def test_a_text_in_cpp_has_these_mutations() -> None:
    assert sorted(mutation.described(CPP) for mutation in of_cpp.mutations_of(CPP)) == [
        "5: statement: `++counted;` becomes `nothing`",
        "6: statement: `note(at);` becomes `nothing`",
        "7: condition: `!at` becomes `!(!at)`",
        "7: guard: `if (!at) return false;` becomes `nothing`",
        "7: word: `false` becomes `true`",
        "8: arithmetic: `+=` becomes `-=`",
        "8: bound: `<` becomes `<=`",
        "8: comparison: `!=` becomes `==`",
        "8: condition: `at < last && *at != 7` becomes `!(at < last && *at != 7)`",
        "8: connective: `&&` becomes `||`",
        "8: number: `1` becomes `2`",
        "8: number: `7` becomes `8`",
        "9: word: `true` becomes `false`",
    ]


def test_a_text_in_python_has_these_mutations() -> None:
    assert sorted(mutation.described(PYTHON) for mutation in of_python.mutations_of(PYTHON)) == [
        "10: word: `True` becomes `False`",
        "4: number: `0` becomes `1`",
        "7: statement: `note(at)` becomes `pass`",
        "8: bound: `<` becomes `<=`",
        "8: comparison: `is` becomes `is not`",
        "8: condition: `at is None or at < 7` becomes `(not (at is None or at < 7))`",
        "8: connective: `or` becomes `and`",
        "8: number: `7` becomes `8`",
    ]


def test_the_same_seed_chooses_the_same_places_and_each_changes_its_file() -> None:
    chosen = ENGINE.chosen(200, seed=3)
    assert chosen == ENGINE.chosen(200, seed=3)
    for part, places in ((ENGINE, chosen), (NATIVE, NATIVE.chosen(200, seed=3))):
        assert len({place.described for place in places}) > 190
        assert all((ROOT / part.folder / place.file).read_text() != place.wrong for place in places)
    for place in chosen[:20]:
        ast.parse(place.wrong)
