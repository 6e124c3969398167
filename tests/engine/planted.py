"""Plant the faults of `faults` in a copy of the engine, one at a time, and see that its quick tests find each.

python -m tests.engine.planted             all of them
python -m tests.engine.planted --only mute those whose words, or whose file, hold this

If a fault is not found, it survives, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.engine.faults import FAULTS, PythonFault

_ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("pequod", "grammar", "proto", "server", "bench", "tests", "pyproject.toml")
_TESTS: Final = tuple(
    f"tests/engine/test_{name}.py"
    for name in ("keep", "unless", "kept_ends", "whole_values", "replacing", "shared_tails")
)
_SECONDS_MAX: Final = 600


def finds(folder: Path, fault: PythonFault) -> bool:
    """Return whether a test fails with a fault in place."""
    path = folder / "pequod/engine" / fault.file
    right = path.read_text("utf-8")
    path.write_text(right.replace(fault.right, fault.wrong), "utf-8")
    try:
        return not _passes(folder)
    finally:
        path.write_text(right, "utf-8")


def _passes(folder: Path) -> bool:
    paths = os.pathsep.join(str(folder / name) for name in (".", "grammar", "proto", "server", "bench"))
    environment = {**os.environ, "PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "quick", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *_TESTS,
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    """Plant, and print what became of each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in _COPIED:
            source = _ROOT / part
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / part, ignore=ignored) if source.is_dir() else shutil.copy(source, folder)
        chosen = [fault for fault in FAULTS if options.only in fault.file or options.only in fault.breaks]
        survived = 0
        for fault in chosen:
            is_found = finds(folder, fault)
            survived += not is_found
            print(f"{'found' if is_found else 'SURVIVED':8}  {fault.file}: {fault.breaks}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} faults are found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
