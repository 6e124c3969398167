"""Go programs of tests: where Go is, and how its programs are built and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

_ELSEWHERE: Final = Path("/usr/local/go/bin/go")


@cache
def go_command() -> str | None:
    """Return the path of Go 1.21 or newer, which fetches the version by itself that a program asks for."""
    found = shutil.which("go") or (str(_ELSEWHERE) if _ELSEWHERE.exists() else None)
    if found is None:
        return None
    version = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"go1\.(\d+)", version)
    return found if match and int(match[1]) >= 21 else None


def why_absent(what: str) -> str:
    """Return why something is not there that is built with Go; empty if it is."""
    return "" if go_command() else f"{what} needs Go 1.21 or newer: https://go.dev/doc/install"


def run_go(folder: Path, *arguments: str) -> str:
    """Run Go in a folder, with the versions of packages that its go.mod names; return what it prints."""
    go = go_command()
    assert go is not None, why_absent("this")
    variables = {**os.environ, "GOFLAGS": "-mod=readonly"}
    done = subprocess.run([go, *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"go {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout
