"""Porcupine as the judge of histories: a checker of linearizability that is not Pequod's, built with Go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_ELSEWHERE: Final = Path("/usr/local/go/bin/go")


def why_absent() -> str:
    """Return why there is no judge here; empty if there is one."""
    return "" if _go() else "the judge of histories needs Go 1.21 or newer: https://go.dev/doc/install"


def _go() -> str | None:
    return shutil.which("go") or (str(_ELSEWHERE) if _ELSEWHERE.exists() else None)


class Judge:
    """The judge, built into a folder."""

    def __init__(self, folder: Path) -> None:
        go = _go()
        assert go is not None, why_absent()
        self._program = folder / "judge"
        variables = {**os.environ, "GOFLAGS": "-mod=readonly"}
        built = subprocess.run(
            [go, "build", "-o", str(self._program), "."], cwd=_HERE, env=variables, capture_output=True, check=False
        )
        assert built.returncode == 0, f"the judge cannot be built: {built.stderr.decode()}"

    def wrong(self, histories: Iterable[dict[str, object]]) -> list[str]:
        """Return the names of histories that no store gives which does one thing at a time, each with why."""
        lines = [json.dumps(one).encode() for one in histories]
        judged = subprocess.run([str(self._program)], input=b"\n".join(lines), capture_output=True, check=False)
        assert judged.returncode == 0, judged.stderr.decode()
        *found, count = judged.stdout.decode().splitlines()
        assert int(count) == len(lines), "all were judged"
        return found
