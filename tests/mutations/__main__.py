"""Change the native core or the engine in one small place at a time, at random, and see whether tests find each.

python -m tests.mutations --of native --count 100 --seed 0     run them, and write what became of each to a file
python -m tests.mutations --of native --more                   ask more of the suite about those that survived there

A mutation is found if a test fails, fails again when it runs alone, and passes without the mutation, or if the process
dies or goes on for ever. The tests run in a copy of the sources; those that found something in the same file come
first. What survives is judged by hand: some mutations change nothing that a caller can see.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.mutations.places import PARTS, ROOT, Part, Place
from tests.native.scratch import Core, copy_sources, failure

#: For all tests of a step, on a machine that does other work as well.
_SECONDS_MAX: Final = 1800
#: They take longest, and come with what more there is.
_LONG: Final = frozenset({"tests/engine/test_exactness.py", "tests/native/test_rest_ids.py"})
#: A quick one, which shows that tests run in the copy.
_FIRST: Final = "tests/engine/test_laws.py"
#: How the row of a mutation ends.
SURVIVED: Final = "SURVIVED"
UNBUILT: Final = "does not compile"


class Trial:
    """A copy of the sources in which mutations are tried."""

    def __init__(self, part: Part, folder: Path) -> None:
        tracked = subprocess.run(("git", "ls-files"), cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = [name for name in tracked.splitlines() if (ROOT / name).exists()]
        built = [str(path.relative_to(ROOT)) for path in (ROOT / "pequod" / "native").glob("_hot*.so")]
        is_native = part.name == "native"
        copy_sources(folder, names if is_native else names + built)
        self._part, self._folder = part, folder
        self._core = Core(folder) if is_native else None
        #: How often each file of tests has found something, in this part and in each file of it.
        self._finders: Counter[str] = Counter()
        self._finders_of: dict[str, Counter[str]] = {}
        self._sound = set[str]()
        self._passes(_FIRST)

    def outcome(self, place: Place, tests: tuple[str, ...]) -> str:
        """Return what found a mutation, `SURVIVED` or `UNBUILT`."""
        try:
            with self._planted(place):
                found = failure(self._folder, self._in_order(place.file, tests), _SECONDS_MAX)
                kind, _, test = (found or "").partition(" ")
                is_test = kind in ("FAILED", "ERROR") and "::" in test
                if is_test and failure(self._folder, (test,), _SECONDS_MAX) is None:
                    # Something else was wrong: a machine that was too busy. The rest is asked once more.
                    found = failure(self._folder, self._in_order(place.file, tests), _SECONDS_MAX)
        except subprocess.CalledProcessError:
            return UNBUILT
        if is_test:
            self._passes(test)
            file = test.split("::")[0]
            self._finders[file] += 1
            self._finders_of.setdefault(place.file, Counter())[file] += 1
        return found or SURVIVED

    def _passes(self, test: str) -> None:
        """See that a test passes without a mutation, unless it is known.

        Raises:
            AssertionError: It does not, and so finds nothing.
        """
        if test in self._sound:
            return
        if self._core is not None:
            self._core.link()
        assert failure(self._folder, (test,), _SECONDS_MAX) is None, f"{test} fails without a mutation"
        self._sound.add(test)

    def _planted(self, place: Place) -> AbstractContextManager[None]:
        if self._core is not None:
            return self._core.planted(place.file, place.wrong)
        return _written(self._folder / self._part.folder / place.file, place.wrong)

    def _in_order(self, mutated: str, tests: tuple[str, ...]) -> list[str]:
        """Return files of tests, those first that have found most."""
        files = [
            str(path.relative_to(self._folder))
            for name in tests
            for path in (
                [self._folder / name] if name.endswith(".py") else sorted((self._folder / name).rglob("test_*.py"))
            )
        ]
        of_file = self._finders_of.get(mutated, Counter())
        stem = Path(mutated).stem

        def rank(file: str) -> tuple[int, bool, int]:
            return -of_file[file], not (stem and stem in file), -self._finders[file]

        return sorted(dict.fromkeys(files), key=rank)


@contextmanager
def _written(path: Path, wrong: str) -> Iterator[None]:
    right = path.read_text("utf-8")
    path.write_text(wrong, "utf-8")
    try:
        yield
    finally:
        path.write_text(right, "utf-8")


def _quick(trial_folder: Path, part: Part) -> tuple[str, ...]:
    files = [
        str(path.relative_to(trial_folder))
        for name in part.quick
        for path in ([trial_folder / name] if name.endswith(".py") else sorted((trial_folder / name).glob("test_*.py")))
    ]
    return tuple(file for file in files if file not in _LONG)


def _written_down(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main() -> int:
    """Try mutations; return 1 if fewer than nine of ten were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=sorted(PARTS), default="native")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", action="store_true", help="ask more tests about the survivors of the file")
    parser.add_argument("--out", type=Path, help="build/mutations-OF.jsonl; a run goes on where the file ends")
    options = parser.parse_args()
    part = PARTS[options.of]
    out = options.out or ROOT / "build" / f"mutations-{part.name}.jsonl"
    known = _written_down(out)
    places = part.chosen(options.count, options.seed)
    if options.more:
        survivors = {row["mutation"] for row in known if row["outcome"] == SURVIVED}
        waiting = [place for place in places if place.described in survivors]
    else:
        waiting = [place for place in places if place.described not in {row["mutation"] for row in known}]
    folder = (ROOT / "build" / f"mutated-{part.name}").resolve()
    trial = Trial(part, folder)
    tests = part.more if options.more else _quick(folder, part)
    out.parent.mkdir(exist_ok=True)
    for number, place in enumerate(waiting, 1):
        begun_s = time.monotonic()
        outcome = trial.outcome(place, tests)
        with out.open("a") as file:
            file.write(f"{json.dumps({'mutation': place.described, 'outcome': outcome})}\n")
        print(
            f"{number:3}/{len(waiting)} {outcome} ({time.monotonic() - begun_s:.0f} s)\n        {place.described}",
            flush=True,
        )
    return _told({row["mutation"]: row["outcome"] for row in _written_down(out)})


def _told(outcomes: dict[str, str]) -> int:
    """Print the counts and the survivors."""
    built = {name: outcome for name, outcome in outcomes.items() if outcome != UNBUILT}
    survivors = sorted(name for name, outcome in built.items() if outcome == SURVIVED)
    for name in survivors:
        print(f"survived: {name}")
    found = len(built) - len(survivors)
    print(f"{found} of {len(built)} mutations were found; {len(outcomes) - len(built)} more did not compile")
    return 0 if found >= 0.9 * len(built) else 1


if __name__ == "__main__":
    sys.exit(main())
