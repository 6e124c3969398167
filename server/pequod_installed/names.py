"""The distribution's name, its version, and the hint how to install an extra of it.

The package is imported as `pequod`, and the command is `pequod`; but the distribution of that name on PyPI is another
project's, a colour palette. So each message that says what to install asks here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

#: What pip installs.
NAME: Final = "pequod-cache"
_STRANGER: Final = "pequod"
#: The checkout, if Pequod runs from one.
_CHECKOUT: Final = Path(__file__).parents[2]


def version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version as version_of  # noqa: PLC0415 - takes 20 ms, and most commands do without

    return version_of(NAME)


def how_to_install(*extras: str) -> str:
    """Return the command that installs Pequod with extras.

    Nothing is fetched by name where Pequod runs from a checkout, or was installed from one or from a wheel: what is
    there is installed, and a checkout stays one.
    """
    return f"pip install {_source(','.join(extras))}"


def how_to_compile() -> str:
    """Return what gives an installed Pequod its native core."""
    script = _CHECKOUT / "pequod/native/build.py"
    needed = "with a C++ compiler and Python's headers (Debian: g++, python3-dev)"
    if script.is_file():
        return f"{needed}: {sys.executable} {script} {script.parent}"
    return f"{needed}: pip install --force-reinstall --no-deps --no-cache-dir {_source()}"


def _source(extras: str = "") -> str:
    wanted = f"[{extras}]" if extras else ""
    if not (_CHECKOUT / "pyproject.toml").is_file():
        return f"'{_installed_from() or NAME}{wanted}'"
    return f"-e '{'.' if Path.cwd() == _CHECKOUT else _CHECKOUT}{wanted}'"


def _installed_from() -> str | None:
    """Return the folder or the wheel from which pip installed Pequod; None if it came by name, or that is gone."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - as said

    try:
        # PEP 610: pip leaves it where what it installed was no name.
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    url = urlsplit(origin.get("url", ""))
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else None


def stranger() -> str | None:
    """Return what to say of a distribution called `pequod`, with the way out; None: none is installed."""
    # Each start of a command looks: to ask importlib.metadata takes 20 ms, and to list a folder 0.2 ms.
    if not any(list(Path(folder).glob(f"{_STRANGER}-*.dist-info")) for folder in sys.path if folder):
        return None
    from importlib.metadata import distribution  # noqa: PLC0415 - as said

    found = distribution(_STRANGER)
    summary = (found.metadata.get_all("Summary") or ["no summary"])[0]
    way_out = f"pip uninstall {_STRANGER} && pip install --force-reinstall --no-deps {_source()}"
    return (
        f"the distribution {_STRANGER} {found.version} is installed here ({summary!r}), "
        f"and its files and Pequod's lie in one folder; Pequod is {NAME}: {way_out}"
    )
