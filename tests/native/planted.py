"""Plant the faults of `faults`, one at a time, and see that the quick tests find each.

python -m tests.native.planted                  all of them: twenty minutes on two quiet cores
python -m tests.native.planted --only COUNT     those whose file or text holds one of some texts

The core is compiled in a copy of the sources, object by object, so that a fault compiles only what includes its file.
A fault is found if a test fails, if the process dies or goes on for too long, or if nothing compiles. If one is not
found, it survives, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.native.fault import Fault
from tests.native.faults import FAULTS
from tests.native.scratch import Core, copy_sources, failure

_ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("pequod", "grammar", "proto", "server", "bench", "tests", "docs", "pyproject.toml")
#: The core's own tests, which are to find what is wrong with it, and not only those of all that stands on it.
_TESTS: Final = (
    "tests/native",
    "tests/regress",
    "tests/client/test_columns.py",
    "tests/engine/test_searched.py",
    "tests/engine/test_whole_values.py",
    "tests/engine/test_expiry.py",
    "tests/once/test_batches.py",
    "tests/workers/test_relay.py",
    "tests/workers/test_relay_ends.py",
)
#: A fault that lets a loop go on for ever is found too.
_SECONDS_MAX: Final = 240


def finds(folder: Path, core: Core, fault: Fault) -> str | None:
    """Return how the tests find a fault; None: they do not."""
    right = (folder / "pequod" / "native" / fault.file).read_text()
    try:
        with core.planted(fault.file, right.replace(fault.right, fault.wrong)):
            return failure(folder, _TESTS, _SECONDS_MAX)
    except subprocess.CalledProcessError:
        return "does not compile"


def main() -> int:
    """Plant faults; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose file or text holds one of these")
    parser.add_argument("--folder", type=Path, default=_ROOT / "build" / "planted", help="for the copy of the sources")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if any(text in f"{fault.file}: {fault.breaks}" for text in options.only)]
    folder = options.folder.resolve()
    copy_sources(folder, _COPIED)
    core = Core(folder)
    if failure(folder, _TESTS, _SECONDS_MAX):
        print("the tests fail without a fault")
        return 1
    survivors = 0
    for number, fault in enumerate(faults, 1):
        begun_s = time.monotonic()
        found = finds(folder, core, fault)
        survivors += found is None
        taken_s = time.monotonic() - begun_s
        print(
            f"{number:3}/{len(faults)} {found or 'SURVIVES'}\n        {fault.file}: {fault.breaks} ({taken_s:.0f} s)",
            flush=True,
        )
    print(f"{len(faults) - survivors} of {len(faults)} faults are found, {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
