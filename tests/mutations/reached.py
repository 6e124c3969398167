"""Which tests reach a line: those that are asked about a mutation of it, the quickest first.

One run of all tests notes it, in a core that is compiled to tell which of its blocks run, or under `coverage`. It is
kept in a file until a source or a test is another one.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.mutations.places import Part, Place
from tests.native.scratch import Core, failure

_SECONDS_MAX: Final = 7200
#: The tests of each line of each file.
_TestsOf = dict[str, dict[int, set[str]]]
_TRACED: Final = ("-g", "-fsanitize-coverage=trace-pc")


class Reached:
    """The tests that reach each line of a part."""

    def __init__(self, folder: Path, seconds: dict[str, float], tests_of: dict[str, dict[int, list[str]]]) -> None:
        self._folder = folder
        #: Of CPU, by the ids of all tests.
        self.seconds = seconds
        self._tests_of = tests_of

    def tests(self, place: Place) -> list[str]:
        """Return the tests that reach a place: first those that reach its line, then those that reach its function.

        Of a place outside of functions all that reach its file.
        """
        lines = self._tests_of.get(place.file, {})
        numbers = sorted(lines)
        first, last = _function(self._folder / place.file, place.line)
        if not place.file.endswith(".py"):
            # A block goes from the line that the compiler noted of it to the next one.
            exact = numbers[max(bisect_right(numbers, place.line) - 1, 0) :][:1]
        else:
            begun = _statement(self._folder / place.file, place.line)
            exact = [number for number in numbers if begun <= number <= place.line]
        near = [number for number in numbers if first <= number <= last]
        if not near:
            # What stands there is data, such as a table of numbers, of which nothing runs.
            first, last, near, exact = 0, place.line, numbers, []
        at_once = {test for number in exact if first <= number <= last for test in lines[number]}
        others = {test for number in near for test in lines[number]} - at_once
        return [*self._by_time(at_once), *self._by_time(others)]

    def _by_time(self, tests: set[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def reached(part: Part, folder: Path, kept: Path, tests: Sequence[str]) -> Reached:
    """Return what the tests of a copy of the sources reach: as it is kept, or from a run of them all.

    Raises:
        AssertionError: A test fails without any mutation.
    """
    digest = _digest(
        [*(folder / part.folder).rglob("*.py" if part.suffix == ".py" else "*.?pp"), *(folder / name for name in tests)]
    )
    record = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    if record.get("digest") != digest:
        note = _of_blocks if part.name == "native" else _of_lines
        record = _numbered(digest, *note(part, folder, kept, tests))
        kept.write_text(json.dumps(record), "utf-8")
    names = list(record["seconds"])
    tests_of = {
        file: {int(line): [names[number] for number in numbers] for line, numbers in lines.items()}
        for file, lines in record["tests_of"].items()
    }
    return Reached(folder / part.folder, record["seconds"], tests_of)


def _numbered(digest: str, seconds: dict[str, float], tests_of: _TestsOf) -> dict[str, Any]:
    """Return what is kept: tests by their numbers, as each stands there thousands of times."""
    numbers = {name: number for number, name in enumerate(seconds)}
    lines_of = {
        file: {line: sorted(numbers[name] for name in names) for line, names in lines.items()}
        for file, lines in tests_of.items()
    }
    return {"digest": digest, "seconds": seconds, "tests_of": lines_of}


def _digest(paths: Iterable[Path]) -> str:
    hashed = hashlib.sha256()
    for path in sorted(paths):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def _of_lines(part: Part, folder: Path, kept: Path, tests: Sequence[str]) -> tuple[dict[str, float], _TestsOf]:
    place = folder / part.folder
    record = _recorded(folder, kept, tests, {"PEQUOD_LINES_OF": str(place)})
    tests_of = {
        str(Path(file).relative_to(place)): {int(line): set(names) - {""} for line, names in lines.items()}
        for file, lines in record["lines"].items()
    }
    return record["seconds"], tests_of


def _of_blocks(part: Part, folder: Path, kept: Path, tests: Sequence[str]) -> tuple[dict[str, float], _TestsOf]:
    place = folder / part.folder
    core = Core(folder, _TRACED, Path(__file__).with_suffix(".cpp"))
    bits = kept.with_suffix(".bits")
    bits.write_bytes(bytes(core.path.stat().st_size))
    record = _recorded(folder, kept, tests, {"PEQUOD_REACHED": str(bits)})
    bits.unlink()
    blocks = sorted({at for places in record["blocks"].values() for at in places})
    # Within the call of the block, which returns to its address.
    asked = "".join(f"{at - 1:#x}\n" for at in blocks)
    told = subprocess.run(("addr2line", "-e", core.path), input=asked, capture_output=True, text=True, check=True)
    lines = dict(zip(blocks, map(_file_and_line, told.stdout.splitlines()), strict=True))
    tests_of: _TestsOf = defaultdict(dict)
    for test, places in record["blocks"].items():
        for at in places:
            path, line = lines[at]
            if path.is_relative_to(place):
                tests_of[str(path.relative_to(place))].setdefault(line, set()).add(test)
    return record["seconds"], tests_of


def _file_and_line(told: str) -> tuple[Path, int]:
    path, _, line = told.partition(" ")[0].rpartition(":")
    return Path(path).resolve(), int(line) if line.isdigit() else 0


def _recorded(folder: Path, kept: Path, tests: Sequence[str], variables: dict[str, str]) -> Any:
    noted = kept.with_suffix(".noted")
    plugin = ("-p", "tests.mutations.recording")
    found = failure(folder, (*plugin, *tests), _SECONDS_MAX, {**variables, "PEQUOD_RECORD": str(noted)})
    assert found is None, f"without a mutation: {found}"
    record = json.loads(noted.read_text("utf-8"))
    noted.unlink()
    return record


def _statement(path: Path, line: int) -> int:
    """Return the line at which the innermost statement of Python begins that a line belongs to."""
    tree = ast.parse(path.read_text("utf-8"))
    around = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return max((node.lineno for node in around if node.lineno <= line <= (node.end_lineno or 0)), default=line)


def _function(path: Path, line: int) -> tuple[int, int]:
    """Return the first and the last line of the function around a line; of the file, if there is none."""
    text = path.read_text("utf-8")
    whole = 1, text.count("\n") + 1
    if path.suffix == ".py":
        around = (
            node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        )
        found = ((node.lineno, node.end_lineno or 0) for node in around)
        return max((one for one in found if one[0] < line <= one[1]), default=whole)
    # As clang-format lays it out, its head and its end stand at the left.
    rows = text.splitlines()
    heads = [number for number, row in enumerate(rows, 1) if number <= line and re.match(r"\w|\}", row)]
    ends = [number for number, row in enumerate(rows, 1) if number >= line and row.startswith("}")]
    if not heads or not ends or re.match(r"namespace|\}", rows[heads[-1] - 1]):
        return whole
    return heads[-1], ends[0]
