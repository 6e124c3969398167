"""Our program of go-ycsb, built with Go, at a server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from tests.golang import building

_HERE: Final = Path(__file__).parent
#: YCSB's own names of its standard workloads.
WORKLOADS: Final = "abcdef"
#: Each kind of operation, and the count of those that did not fail.
_COUNTED: Final = re.compile(r"^(\w[\w-]*?) +- Takes\(s\): [\d.]+, Count: (\d+)", re.MULTILINE)


def why_absent() -> str:
    """Return why it cannot be built here; empty if it can."""
    return building.why_absent("go-ycsb")


class Ycsb:
    """The program, built into a folder, and the server that it goes to."""

    def __init__(self, folder: Path, target: str) -> None:
        self._program = folder / "ycsb"
        self._target = target
        building.run_go(_HERE, "build", "-o", str(self._program), ".")

    def run(self, step: str, workload: str, **properties: object) -> str:
        """Run `load`, `run` or `check` of a workload; return what it prints.

        Raises:
            AssertionError: Calls have failed, records were lost, or a value is not the one that was written.
        """
        settings = [word for name, value in properties.items() for word in ("-p", f"{name}={value}")]
        command: list[str | Path] = [self._program, step, self._target, "-P", _HERE / "workloads" / workload, *settings]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, f"{done.stdout}{done.stderr}"
        return str(done.stdout)


def loaded_of(workload: str, records: int, operations: int) -> int:
    """Return how many records are to be loaded before a run.

    go-ycsb draws popular records from one more than there are, and from twice as many as it is going to insert, whether
    or not it has inserted them. They are loaded, so that each record that is not found is a lost one.
    """
    return {"d": records, "e": records + operations // 10 + 1}.get(workload, records + 1)


def counts_of(printed: str) -> dict[str, int]:
    """Return how many operations of each kind a run has had, as it prints them at its end."""
    return {kind: int(count) for kind, count in _COUNTED.findall(printed)}
