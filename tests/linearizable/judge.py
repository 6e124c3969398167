"""Porcupine as the judge of histories: a checker of linearizability that is not Pequod's, built with Go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.golang import building

_HERE: Final = Path(__file__).parent


def why_absent() -> str:
    """Return why there is no judge here; empty if there is one."""
    return building.why_absent("the judge of histories")


class Judge:
    """The judge, built into a folder."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "judge"
        building.run_go(_HERE, "build", "-o", str(self._program), ".")

    def wrong(self, histories: Iterable[dict[str, object]]) -> list[str]:
        """Return the names of histories that no store gives which does one thing at a time, each with why."""
        lines = [json.dumps(one).encode() for one in histories]
        judged = subprocess.run([str(self._program)], input=b"\n".join(lines), capture_output=True, check=False)
        assert judged.returncode == 0, judged.stderr.decode()
        *found, count = judged.stdout.decode().splitlines()
        assert int(count) == len(lines), "all were judged"
        return found
