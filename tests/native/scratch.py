"""Copies of the sources in which faults are planted: the core is compiled there by objects, and tests run there."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_COMPILE: Final = ("-std=c++17", "-O0", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-DNDEBUG")
#: How tests end that do not.
FOR_EVER: Final = "goes on for ever"
#: By the clock, a test: none takes as long where a fault does not have it wait for ever, on whatever machine.
_TIMEOUT_S: Final = 900
_OPTIONS: Final = (
    f"--timeout={_TIMEOUT_S}",
    "-q",
    "-x",
    "--tb=no",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
)


def copy_sources(folder: Path, names: Iterable[str], *, is_built: bool = False) -> None:
    """Copy files and folders of the project into a new folder.

    Args:
        folder: What is there goes.
        names: Relative to the project.
        is_built: Whether the native core goes with them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", *([] if is_built else ["_hot*.so"]))
    for name in names:
        source, target = _ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, ignore=ignored) if source.is_dir() else shutil.copy(source, target)


class Core:
    """The native core of a folder of sources, compiled there.

    Args:
        folder: Of the sources.
        options: More of the compiler's, for all files of the core.
        beside: A file of C++ that becomes a part of the core and is compiled without them.
    """

    def __init__(self, folder: Path, options: Sequence[str] = (), beside: Path | None = None) -> None:
        self._native = folder / "pequod" / "native"
        self.path: Final = self._native / f"_hot{sysconfig.get_config_var('EXT_SUFFIX')}"
        self._compiler = shlex.split(os.environ.get("CXX", "c++"))
        for former in self._native.rglob("*.o"):
            former.unlink()
        if beside is not None:
            self._compile_one(str(beside), "beside.o", ())
        self._options = options
        self._compile([str(path.relative_to(self._native)) for path in sorted(self._native.rglob("*.cpp"))])
        self._objects = {path: path.read_bytes() for path in self._native.rglob("*.o")}

    @contextmanager
    def planted(self, file: str, wrong: str) -> Iterator[None]:
        """Have a file hold another text meanwhile, and the core that comes of it.

        Raises:
            subprocess.CalledProcessError: It does not compile.
        """
        path = self._native / file
        right = path.read_text()
        path.write_text(wrong)
        concerned = [file] if file.endswith(".cpp") else self._including(file)
        try:
            self._compile(concerned)
            yield
        finally:
            path.write_text(right)
            for name in concerned:
                made = self._native / Path(name).with_suffix(".o")
                made.write_bytes(self._objects[made])

    def _including(self, header: str) -> list[str]:
        """Return the files of which a header is a part, as the compiler noted at the last compilation."""
        return [
            str(path.with_suffix(".cpp").relative_to(self._native))
            for path in sorted(self._native.rglob("*.d"))
            if any(Path(part).name == Path(header).name for part in path.read_text().split())
        ]

    def _compile(self, names: list[str]) -> None:
        for name in names:
            self._compile_one(name, str(Path(name).with_suffix(".o")), self._options)
        self.link()

    def _compile_one(self, name: str, object_name: str, options: Sequence[str]) -> None:
        include = f"-I{sysconfig.get_path('include')}"
        command = (*self._compiler, *_COMPILE, *options, "-MMD", include, "-c", name, "-o", object_name)
        made = self._native / object_name
        # Beside the folder, for the next one: the same command on the same text, beside the same headers.
        hashed = hashlib.sha256(repr(command).encode())
        for path in (self._native / name, *sorted(self._native.rglob("*.hpp"))):
            hashed.update(path.read_bytes())
        kept = self._native.parents[2] / "objects" / hashed.hexdigest()
        if kept.exists():
            shutil.copy(kept, made)
            shutil.copy(kept.with_suffix(".d"), made.with_suffix(".d"))
            return
        self._call(*command)
        kept.parent.mkdir(exist_ok=True)
        shutil.copy(made.with_suffix(".d"), kept.with_suffix(".d"))
        shutil.copy(made, kept)

    def link(self) -> None:
        """Make the core of the objects as they are."""
        link = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
        objects = [str(path.relative_to(self._native)) for path in sorted(self._native.rglob("*.o"))]
        self._call(*self._compiler, *link, *objects, "-ldl", "-o", self.path.name)

    def _call(self, *command: str) -> None:
        subprocess.run(command, cwd=self._native, check=True, capture_output=True)


def failure(
    folder: Path, tests: Sequence[str], seconds_max: float, variables: Mapping[str, str] | None = None
) -> str | None:
    """Run tests on a folder of sources until one fails; return which, or how they end. None: they pass.

    Args:
        folder: Of the sources.
        tests: Files, folders and ids of tests; also options of pytest.
        seconds_max: By the clock.
        variables: More of the environment.
    """
    command, environment = command_of(folder, tests)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FOR_EVER
    return failed_of(done.returncode, done.stdout)


def command_of(folder: Path, tests: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs tests on a folder of sources until one fails, and its environment."""
    shutil.rmtree(folder / ".hypothesis", ignore_errors=True)
    paths = os.pathsep.join(str(folder / name) for name in (".", "grammar", "proto", "server", "bench"))
    environment = {**os.environ, "PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "quick"}
    environment.pop("PEQUOD_PURE", None)
    return [sys.executable, "-m", "pytest", *_OPTIONS, "--hypothesis-seed=0", *tests], environment


def failed_of(code: int, said: str) -> str | None:
    """Return what failed, by the exit code and the output of the command; None: nothing."""
    if not code:
        return None
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"ends with {code}"
