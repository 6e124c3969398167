"""Change the native core or the engine in one small place at a time, at random, and see whether tests find each.

python -m tests.mutations --of native --count 100 --seed 0     run them, and write what became of each to a file
python -m tests.mutations --of native --cpu-s 3                ask 3 s of tests, of those that reach each place
python -m tests.mutations --of native --again                  ask all tests that reach it, about survivors
python -m tests.mutations --of native --more                   ask more of the suite about those that survived there

A mutation is found if a test fails, fails again when it runs alone, and passes without the mutation, or if the process
dies or goes on for ever. The tests run in a copy of the sources, and first all of them without a mutation, to note
which lines each reaches: of a mutation those run that reach its line, or else its function, the quickest first. What
survives is judged by hand: some mutations change nothing that a caller can see.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from tests.mutations.places import PARTS, ROOT
from tests.mutations.trial import SURVIVED, UNBUILT, Trial


def _written_down(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main() -> int:
    """Try mutations; return 1 if fewer than nine of ten were found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=sorted(PARTS), default="native")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--more", action="store_true", help="ask more tests about the survivors of the file")
    parser.add_argument("--again", action="store_true", help="ask about the survivors of the file again")
    parser.add_argument("--cpu-s", type=float, default=math.inf, help="leave out the longest tests of each beyond that")
    parser.add_argument("--out", type=Path, help="build/mutations-OF.jsonl; a run goes on where the file ends")
    options = parser.parse_args()
    part = PARTS[options.of]
    # Whole, since tests run in another folder.
    out = (options.out or ROOT / "build" / f"mutations-{part.name}.jsonl").resolve()
    known = _written_down(out)
    places = part.chosen(options.count, options.seed)
    if options.more or options.again:
        survivors = {row["mutation"] for row in known if row["outcome"].startswith(SURVIVED)}
        waiting = [place for place in places if place.described in survivors]
    else:
        waiting = [place for place in places if place.described not in {row["mutation"] for row in known}]
    folder = (ROOT / "build" / f"mutated-{part.name}").resolve()
    out.parent.mkdir(exist_ok=True)
    asked = "more" if options.more else "quick"
    tests = part.more if options.more else part.quick
    trial = Trial(part, folder, tests, out.with_name(f"reached-{part.name}-{asked}.json"), options.cpu_s)
    for number, place in enumerate(waiting, 1):
        begun_s = time.monotonic()
        outcome = trial.outcome(place)
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
    survivors = sorted(name for name, outcome in built.items() if outcome.startswith(SURVIVED))
    for name in survivors:
        print(f"survived: {name}")
    found = len(built) - len(survivors)
    print(f"{found} of {len(built)} mutations were found; {len(outcomes) - len(built)} more did not compile")
    return 0 if found >= 0.9 * len(built) else 1


if __name__ == "__main__":
    sys.exit(main())
