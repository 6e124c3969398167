"""Plant the faults of `faults`, one at a time, and see that the quick tests find each.

python -m tests.native.planted                  all of them
python -m tests.native.planted --only COUNT     those whose file or text holds one of some texts

The core is compiled in a copy of the sources, object by object, so that a fault compiles only what includes its file.
The tests of a fault are those that reach its place, as `tests.mutations` finds them: the core's own, not all of those
that stand on it. A fault is found if a test fails, if the process dies or goes on for ever, or if nothing compiles. If
one is not found, it survives, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tests.mutations.places import NATIVE, Place
from tests.mutations.trial import SURVIVED, Trial
from tests.native.fault import Fault
from tests.native.faults import FAULTS

_ROOT: Final = Path(__file__).parents[2]


def place_of(fault: Fault) -> Place:
    """Return where a fault stands."""
    right = (_ROOT / NATIVE.folder / fault.file).read_text("utf-8")
    before = right.partition(fault.right)[0]
    wrong = right.replace(fault.right, fault.wrong)
    return Place(fault.file, right, wrong, f"{fault.file}: {fault.breaks}", before.count("\n") + 1)


def main() -> int:
    """Plant faults; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose file or text holds one of these")
    parser.add_argument("--folder", type=Path, default=_ROOT / "build" / "planted", help="for the copy of the sources")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if any(text in f"{fault.file}: {fault.breaks}" for text in options.only)]
    folder = options.folder.resolve()
    folder.parent.mkdir(exist_ok=True)
    trial = Trial(NATIVE, folder, NATIVE.quick, folder.with_name("reached-native-quick.json"))
    survivors = 0
    for number, place in enumerate(map(place_of, faults), 1):
        begun_s = time.monotonic()
        outcome = trial.outcome(place)
        survivors += outcome.startswith(SURVIVED)
        taken_s = time.monotonic() - begun_s
        print(f"{number:3}/{len(faults)} {outcome} ({taken_s:.0f} s)\n        {place.described}", flush=True)
    print(f"{len(faults) - survivors} of {len(faults)} faults are found, {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
