"""Try mutations, and faults that a hand has written, in a copy of the sources: which test finds each?"""

from __future__ import annotations

import math
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, count
from pathlib import Path
from typing import Final

from tests.mutations.forking import Forking, UnpatchedError
from tests.mutations.places import ROOT, Part, Place
from tests.mutations.reached import reached
from tests.native.scratch import Core, copy_sources, failure

#: For a step, by the clock, on a machine that does other work as well.
_SECONDS_MAX: Final = 1800
#: Of CPU, for a step of tests: pytest itself, and what mutations make slow.
_CPU_S_MAX: Final = 30
_TIMES_MAX: Final = 5
#: Seconds that no file has been written at.
_SECONDS: Final = count(1_000_000_000)
#: Of CPU: tests that take longer come after all others.
_QUICK_S: Final = 0.1
#: They take longest, and what they reach others reach too.
_LONG: Final = frozenset({"tests/engine/test_exactness.py", "tests/native/test_rest_ids.py"})
#: Tests of several processes, which fail where a machine is too busy.
_SERVED: Final = ("tests/workers", "tests/once", "tests/server", "tests/peer", "tests/backing", "tests/freshness")
#: How many tests the first step of a mutation has, and how many times as many each next one.
_FIRST_STEP: Final = 25
_NEXT_STEP: Final = 4
#: How the row of a mutation ends.
SURVIVED: Final = "SURVIVED"
UNBUILT: Final = "does not compile"


class Trial:
    """A copy of the sources in which mutations are tried.

    Args:
        part: What is mutated.
        folder: For the copy; what is there goes.
        tests: Files and folders of tests that are asked.
        kept: A file that keeps what they reach, for the next time.
        cpu_s_max: How long the tests of a mutation may take without one, so that the longest are left out.
    """

    def __init__(self, part: Part, folder: Path, tests: Sequence[str], kept: Path, cpu_s_max: float = math.inf) -> None:
        listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
        told = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = [name for name in told.splitlines() if (ROOT / name).exists()]
        built = [str(path.relative_to(ROOT)) for path in (ROOT / "pequod" / "native").glob("_hot*.so")]
        is_native = part.name == "native"
        copy_sources(folder, names if is_native else names + built, is_built=True)
        self._part, self._folder, self._cpu_s_max = part, folder, cpu_s_max
        self._reached = reached(part, folder, kept, _files(folder, tests))
        self._core = Core(folder) if is_native else None
        #: Of Python all tests wait collected.
        self._files = () if is_native else _files(folder, tests)
        self._tests = Forking(folder, self._files)
        #: How often each file of tests has found something in each file.
        self._finders: dict[str, Counter[str]] = {}

    def outcome(self, place: Place) -> str:
        """Return what found a mutation, `SURVIVED` or `UNBUILT`."""
        finders = self._finders.setdefault(place.file, Counter())
        tests = self._reached.tests(place)

        def rank(test: str) -> tuple[bool, bool, int]:
            # Of those that are quick, first the files that have found something in this file.
            return (
                test.startswith(_SERVED),
                self._reached.seconds[test] > _QUICK_S,
                -finders[test.split("::", maxsplit=1)[0]],
            )

        tests.sort(key=rank)
        used_s = accumulate(self._reached.seconds[test] for test in tests)
        tests = [test for test, used in zip(tests, used_s, strict=True) if used <= self._cpu_s_max]
        try:
            with self._planted(place):
                found = self._found_by(tests, place)
        except subprocess.CalledProcessError:
            return UNBUILT
        if found is None:
            return SURVIVED if tests else f"{SURVIVED}: no test reaches it"
        if "::" in found:
            finders[found.partition(" ")[2].split("::")[0]] += 1
        return found

    def _found_by(self, tests: list[str], place: Place) -> str | None:
        size = _FIRST_STEP
        while tests:
            step = tests[:size]
            found = self._run(step, place)
            if found is None:
                tests, size = tests[size:], size * _NEXT_STEP
                continue
            test = found.partition(" ")[2]
            if test not in step or not test.startswith(_SERVED) or self._run([test], place) is not None:
                return found
            # Something else was wrong: a machine that was too busy.
            tests = tests[step.index(test) + 1 :]
        return None

    def _run(self, tests: list[str], place: Place) -> str | None:
        """Run tests until one fails; what is reached is noted of a run in which all of them passed."""
        cpu_s_max = _CPU_S_MAX + round(_TIMES_MAX * sum(self._reached.seconds[test] for test in tests))
        if not self._files:
            return self._tests.failure(tests, _SECONDS_MAX, cpu_s_max)
        try:
            patched = str(self._folder / self._part.folder / place.file), place.right, place.wrong
            return self._tests.failure(tests, _SECONDS_MAX, cpu_s_max, patched)
        except UnpatchedError:
            return failure(self._folder, tests, _SECONDS_MAX)

    def _planted(self, place: Place) -> AbstractContextManager[None]:
        if self._core is not None:
            return self._core.planted(place.file, place.wrong)
        return _written(self._folder / self._part.folder / place.file, place.wrong)


@contextmanager
def _written(path: Path, wrong: str) -> Iterator[None]:
    right = path.read_text("utf-8")
    _write(path, wrong)
    try:
        yield
    finally:
        _write(path, right)


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    # Python goes on with what it has compiled of a file while its second and its size are the same.
    second = next(_SECONDS)
    os.utime(path, times=(second, second))


def _files(folder: Path, tests: Sequence[str]) -> tuple[str, ...]:
    """Return files of tests, of those and those in folders."""
    files = [
        str(path.relative_to(folder))
        for name in tests
        for path in ([folder / name] if name.endswith(".py") else sorted((folder / name).rglob("test_*.py")))
    ]
    return tuple(file for file in dict.fromkeys(files) if file not in _LONG)
