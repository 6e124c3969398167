"""Plant the faults of `faults`, one at a time, and see that the quick tests find each.

python -m tests.native.planted                  all of them: twenty minutes on two quiet cores
python -m tests.native.planted --only COUNT     those whose file or text holds one of some texts

The core is compiled in a copy of the sources, object by object, so that a fault compiles only what includes its file.
A fault is found if a test fails, if the process dies or goes on for too long, or if nothing compiles. If one is not
found, it survives, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

from tests.native.fault import Fault
from tests.native.faults import FAULTS

_ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("pequod", "grammar", "proto", "server", "bench", "tests", "docs", "pyproject.toml")
_COMPILE: Final = ("-std=c++17", "-O0", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-DNDEBUG")
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


class Scratch:
    """A copy of the sources in which the core is compiled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._native = folder / "pequod" / "native"
        self._compiler = shlex.split(os.environ.get("CXX", "c++"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _COPIED:
            source = _ROOT / name
            ignored = shutil.ignore_patterns("__pycache__", "_hot*.so")
            shutil.copytree(source, folder / name, ignore=ignored) if source.is_dir() else shutil.copy(source, folder)
        self._compile([str(path.relative_to(self._native)) for path in sorted(self._native.rglob("*.cpp"))])
        self._objects = {path: path.read_bytes() for path in self._native.rglob("*.o")}

    def finds(self, fault: Fault) -> str | None:
        """Return how the tests find a fault; None: they do not."""
        path = self._native / fault.file
        right = path.read_text()
        path.write_text(right.replace(fault.right, fault.wrong))
        concerned = [fault.file] if fault.file.endswith(".cpp") else self._including(fault.file)
        try:
            self._compile(concerned)
            return self._run_tests()
        except subprocess.CalledProcessError:
            return "does not compile"
        finally:
            path.write_text(right)
            for name in concerned:
                made = self._native / Path(name).with_suffix(".o")
                made.write_bytes(self._objects[made])

    def passes(self) -> bool:
        """Return whether the tests pass without a fault."""
        return self._run_tests() is None

    def _including(self, header: str) -> list[str]:
        """Return the files of which a header is a part, as the compiler noted at the last compilation."""
        return [
            str(path.with_suffix(".cpp").relative_to(self._native))
            for path in sorted(self._native.rglob("*.d"))
            if any(Path(part).name == Path(header).name for part in path.read_text().split())
        ]

    def _compile(self, names: list[str]) -> None:
        include = f"-I{sysconfig.get_path('include')}"
        for name in names:
            object_name = str(Path(name).with_suffix(".o"))
            self._call(*self._compiler, *_COMPILE, "-MMD", include, "-c", name, "-o", object_name)
        link = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
        objects = [str(path.relative_to(self._native)) for path in sorted(self._native.rglob("*.o"))]
        self._call(*self._compiler, *link, *objects, "-ldl", "-o", f"_hot{sysconfig.get_config_var('EXT_SUFFIX')}")

    def _call(self, *command: str) -> None:
        subprocess.run(command, cwd=self._native, check=True, capture_output=True)

    def _run_tests(self) -> str | None:
        shutil.rmtree(self._folder / ".hypothesis", ignore_errors=True)
        paths = os.pathsep.join(str(self._folder / name) for name in (".", "grammar", "proto", "server", "bench"))
        environment = {**os.environ, "PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "quick"}
        environment.pop("PEQUOD_PURE", None)
        options = ("-q", "-x", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist")
        try:
            done = subprocess.run(
                (sys.executable, "-m", "pytest", *options, "--hypothesis-seed=0", *_TESTS),
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "goes on for ever"
        if not done.returncode:
            return None
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0] if failed else f"ends with {done.returncode}"


def main() -> int:
    """Plant faults; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="faults whose file or text holds one of these")
    parser.add_argument("--folder", type=Path, default=_ROOT / "build" / "planted", help="for the copy of the sources")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if any(text in f"{fault.file}: {fault.breaks}" for text in options.only)]
    scratch = Scratch(options.folder.resolve())
    if not scratch.passes():
        print("the tests fail without a fault")
        return 1
    survivors = 0
    for number, fault in enumerate(faults, 1):
        begun_s = time.monotonic()
        found = scratch.finds(fault)
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
