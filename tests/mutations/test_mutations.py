"""Mutations are small changes of what runs: of each kind, and of no comment, text or declaration."""

from __future__ import annotations

import ast
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.mutations import of_cpp, of_python
from tests.mutations.forking import Forking, UnpatchedError
from tests.mutations.patching import patch
from tests.mutations.places import ENGINE, NATIVE, ROOT, Place
from tests.mutations.reached import Reached
from tests.native.scratch import FOR_EVER

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


def test_a_patch_of_functions_is_heard_wherever_they_are_held_and_what_ran_already_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "patched.py"
    right = "LIMIT = 1\n\nclass Held:\n    def inner(self):\n        return [one + LIMIT for one in (1, 2)]\n"
    path.write_text(right)
    spec = spec_from_file_location("patched", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    held = module.Held().inner
    assert held() == [2, 3]
    assert patch(str(path), right, right.replace("one + LIMIT", "one - LIMIT"))
    assert held() == [0, 1]
    assert not patch(str(path), right, right.replace("LIMIT = 1", "LIMIT = 2"))


def test_tests_are_asked_that_reach_the_line_and_then_those_of_its_function(tmp_path: Path) -> None:
    text = "def one(at):\n    if (at and\n            at > 7):\n        return 1\n    return 2\n\n\nTHREE = 3\n"
    (tmp_path / "a.py").write_text(text)
    lines = {1: ["t::import"], 2: ["t::slow", "t::quick"], 4: ["t::deep"], 5: ["t::quick"], 8: ["t::import"]}
    seconds = {"t::slow": 2.0, "t::quick": 0.1, "t::deep": 0.2, "t::import": 1.0}
    reached = Reached(tmp_path, seconds, {"a.py": lines})

    def asked(line: int) -> list[str]:
        return reached.tests(Place("a.py", text, text, "", line))

    assert asked(3) == ["t::quick", "t::slow", "t::deep", "t::import"], "the condition begins a line before"
    assert asked(4) == ["t::deep", "t::quick", "t::import", "t::slow"]
    assert asked(8)[0] == "t::import"


def test_a_waiting_process_runs_tests_with_and_without_a_patch(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(right := "def number():\n    return 1\n")
    (tmp_path / "test_own.py").write_text("import own\n\n\ndef test_number():\n    assert own.number() == 1\n")
    wrong, ids = right.replace("1", "2"), ["test_own.py::test_number"]
    collected = Forking(tmp_path, ["test_own.py"])
    assert collected.failure(ids, 300, 60) is None
    assert collected.failure(ids, 300, 60, (str(tmp_path / "own.py"), right, wrong)) == f"FAILED {ids[0]}"
    endless = right.replace("return 1", "while True: pass")
    assert collected.failure(ids, 300, 1, (str(tmp_path / "own.py"), right, endless)) == FOR_EVER
    with pytest.raises(UnpatchedError):
        collected.failure(ids, 300, 60, (str(tmp_path / "own.py"), right, f"LIMIT = 1\n{right}"))
    assert collected.failure(ids, 300, 60) is None
    collected.close()
