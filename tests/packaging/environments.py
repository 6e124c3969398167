"""Virtual environments that have Pequod's wheel with some extras, and nothing else.

In the suite, files of packages are links to those of the suite's own environment: the distributions that the extras ask
for, and those that these ask for, and what Python compiled of them. pip installs the wheel once, and further
environments have links to its files. So an environment takes half a second, and no network. With PEQUOD_EXTRAS=pip, as
in `make test-extras`, pip installs them as it does for users: minutes, and most packages there are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pequod.native import core

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "pequod-cache"


def built_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    # What it is built with, hatchling, comes with the development packages: nothing is fetched.
    subprocess.run([*command, "--no-build-isolation"], env=os.environ | _compiler(folder), check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _compiler(folder: Path) -> dict[str, str]:
    """Return the variables of a compiler that hands out the core of the suite, if it has one: to compile takes 20 s."""
    if core is None or _is_by_pip():
        return {}
    script = folder / "compiler"
    # The last argument is what it is to make.
    script.write_text(f'#!/bin/sh\nshift $(($# - 1))\ncp {shlex.quote(str(core.__file__))} "$1"\n')
    script.chmod(0o755)
    return {"CXX": str(script)}


def _is_by_pip() -> bool:
    return os.environ.get("PEQUOD_EXTRAS", "linked") == "pip"


def environment(folder: Path, wheel: Path, extras: tuple[str, ...]) -> Path:
    """Make an environment, and return its interpreter."""
    python = folder / "bin/python"
    if _is_by_pip():
        venv.create(folder, with_pip=True, symlinks=True)
        wanted = f"{wheel}[{','.join(extras)}]" if extras else f"{wheel}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", wanted], check=True)
        return python
    venv.create(folder, symlinks=True)
    installed = _installed(wheel)
    packages = _packages(folder)
    shutil.copytree(_packages(installed), packages, copy_function=_link_file, dirs_exist_ok=True)
    command = (installed / "bin/pequod").read_text()
    assert command.startswith(f"#!{installed}/bin/python")
    python.with_name("pequod").write_text(command.replace(str(installed), str(folder), 1))
    python.with_name("pequod").chmod(0o755)
    for package in needed(extras):
        _link(package, packages, folder / "bin")
    return python


@cache
def _installed(wheel: Path) -> Path:
    """Have pip install a wheel into an environment beside it, without what it needs, and return the environment."""
    folder = wheel.parent / "installed"
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    return folder


def _packages(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def needed(extras: Iterable[str]) -> list[Distribution]:
    """Return the distributions that Pequod with extras asks for, directly or not."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    asked = [(NAME, extra) for extra in ("", *extras)]
    while asked:
        name, extra = key = asked.pop()
        if key in seen:
            continue
        seen.add(key)
        found[name] = distribution(name)
        for text in found[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                asked += [(canonicalize_name(requirement.name), more) for more in ("", *requirement.extras)]
    del found[NAME]
    return list(found.values())


def _link(package: Distribution, packages: Path, commands: Path) -> None:
    """Put the files of a distribution into an environment, as links where that can be."""
    for file in package.files or ():
        source = Path(str(file.locate())).resolve()
        # Python may have replaced, or not yet made, what pip says that it compiled.
        if file.suffix == ".pyc" and not source.exists():
            continue
        target = commands / file.name if file.parts[0] == ".." else packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two distributions may have a file of a namespace each.
        with suppress(FileExistsError):
            _link_file(source, target)


def _link_file(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        shutil.copy2(source, target)
