"""Compile the native core into a folder: `python pequod/native/build.py pequod/native`; `--check` lints it instead.

`--wheel` before the folder is for a wheel, which carries a copy of the library nghttp2 beside the core, if it is here.

It is one extension of C++ files without dependencies, so the compiler is called as Python's own build would call it,
for as many files at once as there are cores; setuptools would have to be installed first, and says less of what is
missing.

Exit code 1 and one line if there is no compiler, or it fails: Pequod then runs on its Python classes, and a file beside
them keeps the reason, for `pequod --version` and `pequod serve`.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Beside where the core would be, and in a wheel without it: why it could not be compiled. pip does not show it.
REASON_FILE = "not_compiled.txt"
_SOURCES = Path(__file__).parent
_FLAGS = (
    "-std=c++17",
    "-O2",
    "-DNDEBUG",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)
#: What is compiled once rather than with each source.
_HEADERS = (
    *("Python.h", "structmember.h", "algorithm", "array", "cstddef", "cstdint"),
    *("cstring", "iterator", "limits", "memory", "utility"),
)
#: With these a compiler is a linter, which `make check` runs. clang-tidy's checks of bugs and of performance found
#: one harmless place more, in a minute and a half.
_LINT = ("-fsyntax-only", "-Werror", "-Wshadow", "-Wconversion", "-Wcast-qual", "-Wnon-virtual-dtor")
#: A shared library whose symbols of Python are those of the interpreter that loads it.
_LINK = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)
#: Where `dlopen` is, with which nghttp2 is found at run time: older C libraries have it apart.
_LIBRARIES = ("-ldl",)
_COMPILERS = ("c++", "g++", "clang++")
#: The library that carries calls, by the name that systems look for, and where macOS may have it.
_NGHTTP2 = "libnghttp2.14.dylib" if sys.platform == "darwin" else "libnghttp2.so.14"
_MAC_FOLDERS = ("/opt/homebrew/lib", "/usr/local/lib", "/opt/local/lib")
#: The last function that was added to it of those that are needed.
_NGHTTP2_NEEDED = "nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation"


class BuildError(Exception):
    """There is no extension; the text says why."""


def build(folder: Path) -> Path:
    """Compile the extension into a folder, and return its path.

    Raises:
        BuildError: There is no compiler, or it fails.
    """
    target = folder / f"_hot{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise BuildError(f"Python's headers are not installed (python3-dev has them): {include}/Python.h")
    compiler = [*_compiler(), *_FLAGS, *shlex.split(os.environ.get("CXXFLAGS", "")), f"-I{include}"]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        precompiled = _precompiled(compiler, Path(scratch))

        def compiled(source: Path) -> str:
            made = Path(scratch, f"{source.relative_to(_SOURCES)}.o".replace(os.sep, "-"))
            _run([*compiler, *precompiled, "-c", str(source), "-o", str(made)])
            return str(made)

        objects = list(pool.map(compiled, sorted(_SOURCES.rglob("*.cpp"))))
        built = Path(scratch) / target.name
        _run([*compiler, *_LINK, *objects, *_LIBRARIES, "-o", str(built)])
        # Moved, not written: a process that has the former one loaded goes on with it.
        moved = shutil.copy2(built, folder / f".{target.name}.{os.getpid()}")
        return Path(moved).replace(target)


def _precompiled(compiler: list[str], scratch: Path) -> list[str]:
    """Compile the headers that most sources have, and return the options that use them: it halves the time of a build.

    Without them a build takes longer, so whatever fails here is no error. The linter goes without, and so sees what a
    source does not include itself.
    """
    header = scratch / "headers.hpp"
    # As the sources have it before they include Python's headers: sizes in formats are Py_ssize_t.
    lines = ["#define PY_SSIZE_T_CLEAN\n", *(f"#include <{name}>\n" for name in _HEADERS)]
    header.write_text("".join(lines))
    command = [*compiler, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    done = subprocess.run(command, capture_output=True, check=False)
    return [] if done.returncode else ["-include", str(header)]


def _run(command: list[str]) -> None:
    """Run the compiler.

    Raises:
        BuildError: It fails; what it says is shown.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(shlex.join(command), done.stderr, sep="\n", file=sys.stderr)
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit code {done.returncode}"]
        raise BuildError(f"the C++ compiler failed: {errors[0]}")


def copy_nghttp2(folder: Path) -> Path | None:
    """Copy the system's library nghttp2 into the folder of the core, which looks there first; return where it is.

    None: the system has none, or one that is too old. It is for wheels: an editable install takes the system's.
    """
    try:
        library = ctypes.CDLL(next(filter(os.path.exists, (f"{one}/{_NGHTTP2}" for one in _MAC_FOLDERS)), _NGHTTP2))
    except OSError:
        return None
    found = _place_of(library, _NGHTTP2_NEEDED)
    return None if found is None else Path(shutil.copyfile(found, folder / _NGHTTP2))


def _place_of(library: ctypes.CDLL, symbol: str) -> str | None:
    """Return the file of a library that has a symbol; None: it does not have it."""

    class Found(ctypes.Structure):
        # As `dladdr` fills it in.
        _fields_ = (
            ("file", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("name", ctypes.c_char_p),
            ("address", ctypes.c_void_p),
        )

    if not hasattr(library, symbol):
        return None
    found = Found()
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p)
    return os.fsdecode(found.file) if ctypes.CDLL(None).dladdr(address, ctypes.byref(found)) else None


def lint() -> None:
    """Have the compiler look at the sources with more warnings, each of which is an error.

    Raises:
        BuildError: It has found something, and shown it; or there is no compiler.
    """
    # What Python's headers do is theirs.
    include = f"-isystem{sysconfig.get_path('include')}"
    sources = map(str, sorted(_SOURCES.rglob("*.cpp")))
    if subprocess.run([*_compiler(), *_FLAGS, *_LINT, include, *sources], check=False).returncode:
        raise BuildError("the compiler warns")


def _compiler() -> list[str]:
    """Return the command of a C++ compiler: that of CXX, that which Python was built with, or another.

    Raises:
        BuildError: None is installed.
    """
    named = [os.environ.get("CXX", ""), sysconfig.get_config_var("CXX") or ""]
    for command in [*map(shlex.split, named), *([name] for name in _COMPILERS)]:
        if command and shutil.which(command[0]):
            return command
    raise BuildError("there is no C++ compiler (g++ or clang++)")


def main(folder: Path) -> None:
    """Compile into a folder; if that cannot be done, leave none there that was compiled from other sources."""
    reason = folder / REASON_FILE
    try:
        build(folder)
        reason.unlink(missing_ok=True)
    except BuildError as error:
        reason.write_text(f"{error}\n", "utf-8")
        for former in folder.glob(f"_hot{sysconfig.get_config_var('EXT_SUFFIX')}"):
            former.unlink()
        sys.exit(f"no native core, Pequod runs on its Python classes: {error}")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        lint()
    elif sys.argv[1] == "--wheel":
        main(Path(sys.argv[2]))
        copy_nghttp2(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
