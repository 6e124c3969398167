"""The native core and the quick tests under each version of Python that is here: `python tests/pythons.py`.

Each version gets a virtual environment in build/pythons, into which the checkout is installed, so that the core is
compiled for it. Interpreters are looked for on PATH, among those of pyenv and uv, and, where Maven is installed, in the
builds of CPython that Bytedeco publishes for Java; PYTHONS names others: 3.14=/opt/python3.14/bin/python.

    --core      compile the core and run its own tests only
    --installed do with those that are on the machine
    --others    leave out the version that runs this
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
_FOLDER: Final = ROOT / "build/pythons"
#: The builds of Bytedeco, each a whole CPython, by version.
_PUBLISHED: Final = {"3.12": "3.12.1-1.5.10", "3.13": "3.13.5-1.5.12", "3.14": "3.14.3-1.5.13"}
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_NEEDED: Final = (
    *("hpack", "hypothesis", "numpy", "psutil"),
    *("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist"),
)
_CORE: Final = ("tests/native",)
_QUICK: Final = (
    "tests/engine",
    "tests/grammar",
    "tests/native",
    "tests/regress",
    "tests/client/test_clients.py",
    "tests/client/test_columns.py",
)


def found(version: str, *, is_fetched: bool) -> Path | None:
    """Return an interpreter of a version, or None.

    Args:
        is_fetched: Whether one may be fetched.
    """
    named = dict(one.split("=", 1) for one in os.environ.get("PYTHONS", "").split())
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    uv = Path.home() / ".local/share/uv/python"
    places: list[str | Path | None] = [
        named.get(version),
        *sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True),
        *sorted(uv.glob(f"cpython-{version}.*/bin/python{version}"), reverse=True),
        shutil.which(f"python{version}"),
    ]
    for place in [Path(place) for place in places if place]:
        if _runs(place):
            return place
    return _fetched(version) if is_fetched else None


def _runs(python: Path) -> bool:
    """Return whether an interpreter starts, and has what compiles against it."""
    header = "pathlib.Path(sysconfig.get_path('include'), 'Python.h')"
    look = f"import ssl, sqlite3, pathlib, sysconfig; assert {header}.exists()"
    return subprocess.run([python, "-c", look], capture_output=True, check=False).returncode == 0


def _fetched(version: str) -> Path | None:
    if version not in _PUBLISHED or shutil.which("mvn") is None:
        return None
    folder = _FOLDER / f"cpython-{version}"
    python = folder / f"org/bytedeco/cpython/linux-x86_64/bin/python{version}"
    if not python.exists():
        artifact = f"org.bytedeco:cpython:{_PUBLISHED[version]}:jar:linux-x86_64"
        command = ["mvn", "--quiet", "--batch-mode", _GOAL, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        if subprocess.run(command, check=False, cwd="/").returncode:
            return None
        (jar,) = folder.glob("*.jar")
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(folder)
        python.chmod(0o755)
    # It looks for its library where it was built.
    library = str(python.parents[1])
    if library not in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        os.environ["LD_LIBRARY_PATH"] = f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return python if _runs(python) else None


def _made(version: str, python: Path) -> Path:
    """Return the interpreter of the environment of a version, with the checkout as it is now."""
    folder = _FOLDER / version
    own = folder / "bin/python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--prefer-binary", "--editable", f"{ROOT}[server]", *_NEEDED], check=True)
    return own


def tested(version: str, python: Path, tests: tuple[str, ...]) -> bool:
    """Return whether tests pass under a version."""
    own = _made(version, python)
    shown = subprocess.run([own, "-m", "pequod.cli", "--version"], capture_output=True, text=True, check=True).stdout
    print(f"CPython {version}: {shown}", end="", flush=True)
    if "(native)" not in shown:
        return False
    command = [str(own), "-m", "pytest", "-q", "-n", "logical", "--maxprocesses", "6", "-p", "no:cacheprovider"]
    command += ["--short", *tests]
    quick = os.environ | {"HYPOTHESIS_PROFILE": "quick"}
    return subprocess.run(command, cwd=ROOT, env=quick, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Test under each version, and say which were not to be had."""
    tests = _CORE if "--core" in arguments else _QUICK
    failed, lacking = [], []
    for version in VERSIONS:
        if "--others" in arguments and version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        python = found(version, is_fetched="--installed" not in arguments)
        if python is None:
            lacking.append(version)
        elif not tested(version, python, tests):
            failed.append(version)
    if lacking:
        print(f"not here, and not tested: CPython {', '.join(lacking)}")
    if failed:
        print(f"failed: CPython {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
