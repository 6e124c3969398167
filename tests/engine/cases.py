"""Random cases of joins with `unless`, `keep`, `.` or `check?`, among joins of all kinds: the engine is as the model.

    python -m tests.engine.cases --cases 500000 --seed 1

A case is a step of a random walk (`random_walk`) after which the two have been compared. The walks take turns: plain
ones, with backfills, records, a database, one that can be asked by fields, replacements, values with fields of several
sources. Walks in which no join has one of the four do not count. PEQUOD_PURE=1 has the engine without the native core
take them.

Each walk follows from its seed alone, whatever process takes it. One that fails is printed with its seed and, as short
as it could be made, its steps.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from pequod.engine import JoinSpec
from pequod.native import FLAVOUR
from tests.engine.random_walk import describe, walk
from tests.engine.walker import Step

#: What the walks take turns in: arguments of `walk`.
_KINDS: Final[tuple[dict[str, bool], ...]] = (
    {},
    {"backed": True},
    {"backfills": True},
    {"records": True},
    {"records": True, "backfills": True},
    {"records": True, "backed": True, "searched": True},
    {"replacements": True},
    {"replacements": True, "backed": True, "records": True},
    {"composed": True},
    {"composed": True, "backed": True},
    {"composed": True, "backfills": True},
)
_STEPS: Final = 60
#: The words, as they stand in joins.
_ADDITIONS: Final = {"unless": " unless ", "keep": " keep ", ".": r" with \. |, \. | as \.", "check?": r" check\? "}
#: Walks that are handed to the processes together; all of them are over before the next ones begin.
_ROUND: Final = 32
#: How often the run says how far it is.
_SHOWN_EVERY_S: Final = 30.0


class Walked(NamedTuple):
    """What came of the walk of one seed."""

    seed: int
    #: The steps that were compared, and which of the four their joins had.
    cases: int
    additions: set[str]
    #: The shortest script that was found of a difference; None: there was none.
    script: list[Step] | None


def additions(steps: list[Step]) -> set[str]:
    """Return which of the four the joins of a walk have."""
    joins = [str(part) for step in steps for part in step.arguments if isinstance(part, JoinSpec)]
    return {name for name, words in _ADDITIONS.items() if any(re.search(words, join) for join in joins)}


def kind_of(seed: int) -> dict[str, bool]:
    """Return the kind of a seed's walk."""
    return _KINDS[seed % len(_KINDS)]


def walk_from(seed: int) -> Walked:
    """Take the walk of a seed."""
    taken: list[Step] = []
    script = walk(seed, _STEPS, taken=taken, **kind_of(seed))
    return Walked(seed, len(taken), additions(taken), script)


def say_difference(walked: Walked) -> None:
    """Print what takes the walk again."""
    pure = "" if FLAVOUR == "native" else "PEQUOD_PURE=1 "
    print(f"seed {walked.seed}, {kind_of(walked.seed)}: the engine and the naive model differ after these steps:")
    print(*map(describe, walked.script or ()), sep="\n")
    print(f"once more: {pure}python -m tests.engine.cases --cases 1 --seed {walked.seed}", flush=True)


class Count:
    """How many cases there are by now."""

    def __init__(self) -> None:
        self.total = self.mixed = 0
        self.by_addition: Counter[str] = Counter()

    def add(self, walked: Walked) -> None:
        """Count a walk, if one of its joins has one of the four."""
        self.total += walked.cases if walked.additions else 0
        self.mixed += walked.cases if len(walked.additions) > 1 else 0
        self.by_addition.update(dict.fromkeys(walked.additions, walked.cases))

    def __str__(self) -> str:
        each = ", ".join(f"{self.by_addition[name]:,} with {name}" for name in _ADDITIONS)
        return f"{self.total:,} cases, no difference; {each}; {self.mixed:,} with several of them"


def main() -> int:
    """Walk from consecutive seeds until there are as many cases, or for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end then, whatever number has been reached"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="as many as there are cores")
    options = parser.parse_args()
    begun_s = shown_s = time.monotonic()
    seed, count = options.seed, Count()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as processes:
        while count.total < options.cases and time.monotonic() - begun_s < options.seconds:
            for walked in processes.map(walk_from, range(seed, seed + _ROUND)):
                if walked.script is not None:
                    say_difference(walked)
                    return 1
                count.add(walked)
            seed += _ROUND
            if time.monotonic() - shown_s > _SHOWN_EVERY_S:
                shown_s = time.monotonic()
                print(f"{shown_s - begun_s:,.0f} s, up to seed {seed - 1}: {count}", flush=True)
    print(f"{FLAVOUR}, seeds {options.seed} to {seed - 1}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
