"""Random cases of joins with `unless`, `keep` or `.`, among joins of all kinds: the engine is as the naive model.

    python -m tests.engine.cases --cases 500000 --seed 1

A case is a step of a random walk (`random_walk`) after which the two have been compared. The walks take turns: plain
ones, with backfills, records, a database, one that can be asked by fields, replacements. Walks in which no join has
one of the three do not count. PEQUOD_PURE=1 has the engine without the native core take them.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Final

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
)
_STEPS: Final = 60
#: The words, as they stand in joins.
_ADDITIONS: Final = {"unless": " unless ", "keep": " keep ", ".": r" with \. |, \. | as \."}


def additions(steps: list[Step]) -> set[str]:
    """Return which of the three the joins of a walk have."""
    joins = [str(part) for step in steps for part in step.arguments if isinstance(part, JoinSpec)]
    return {name for name, words in _ADDITIONS.items() if any(re.search(words, join) for join in joins)}


def main() -> int:
    """Walk from consecutive seeds until there are as many cases, or for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end then, whatever number has been reached"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun, seed, cases = time.monotonic(), options.seed, dict.fromkeys(_ADDITIONS, 0)
    total = mixed = 0
    while total < options.cases and time.monotonic() - begun < options.seconds:
        taken: list[Step] = []
        kind = _KINDS[seed % len(_KINDS)]
        script = walk(seed, _STEPS, taken=taken, **kind)
        if script is not None:
            print(f"seed {seed}, {kind}:", *map(describe, script), sep="\n")
            return 1
        seed += 1
        found = additions(taken)
        total += len(taken) if found else 0
        mixed += len(taken) if len(found) > 1 else 0
        for name in found:
            cases[name] += len(taken)
    each = ", ".join(f"{count:,} with {name}" for name, count in cases.items())
    print(f"{FLAVOUR}, seeds {options.seed} to {seed - 1}: {total:,} cases, no difference")
    print(f"{each}; {mixed:,} with several of them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
