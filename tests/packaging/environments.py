"""Virtual environments that have Pequod's wheel with some extras, and nothing else.

In the suite, files of packages are links to those of the suite's own environment: the distributions that the extras ask
for, and those that these ask for. So an environment takes two seconds, and no network. With PEQUOD_EXTRAS=pip, as in
`make test-extras`, pip installs them as it does for users: minutes, and most packages there are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "pequod-cache"


def built_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    # What it is built with, hatchling, comes with the development packages: nothing is fetched.
    subprocess.run([*command, "--no-build-isolation"], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path, extras: tuple[str, ...]) -> Path:
    """Make an environment, and return its interpreter."""
    is_linked = os.environ.get("PEQUOD_EXTRAS", "linked") != "pip"
    venv.create(folder, with_pip=not is_linked, symlinks=True)
    python = folder / "bin/python"
    if not is_linked:
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[{','.join(extras)}]"], check=True)
        return python
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for package in needed(extras):
        _link(package, packages, folder / "bin")
    return python


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
        if file.suffix == ".pyc":
            continue
        source = Path(str(file.locate())).resolve()
        target = commands / file.name if file.parts[0] == ".." else packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        # Two distributions may have a file of a namespace each.
        with suppress(FileExistsError):
            try:
                os.link(source, target)
            except OSError as error:
                if isinstance(error, FileExistsError):
                    raise
                shutil.copy2(source, target)
