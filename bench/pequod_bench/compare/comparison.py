"""Everything that a comparison found, as one object; the reports are made of it alone."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil

from pequod_bench.compare.measure import Outcome

#: Runtime as a multiple of Pequod's, in the paper's figure 7.
PAPER_RATIOS: Final = {"pequod": 1.0, "redis": 1.33, "client-pequod": 1.64, "memcached": 3.98, "postgres": 9.55}


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure of several runs."""

    median: float
    least: float
    greatest: float


def spread(values: Sequence[float]) -> Spread:
    """Sum up the values of several runs."""
    return Spread(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One system of figure 7."""

    name: str
    title: str
    version: str
    tuning: str
    #: One for each repetition, in their order; repetition i of all systems ran one after the other.
    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line."""

    x: int
    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class Line:
    """One way of doing things, over what is varied."""

    title: str
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured."""

    system: str
    processor: str
    cores: int
    memory_gib: float
    python: str
    #: Mean number of runnable processes at the start: others that work at the same time.
    load_at_start: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The whole of it."""

    command: str
    commit: str
    started_at: str
    machine: Machine
    seed: int
    repetitions: int
    #: Sizes of each figure, as text.
    twip_size: str
    materialisation_size: str
    newp_size: str
    #: Systems that could not be run, and why.
    skipped: dict[str, str]
    twip: list[SystemResult]
    materialisation: list[Line]
    newp: list[Line]

    def where(self) -> str:
        """Say in one sentence what was measured, when and where."""
        machine = self.machine
        return (
            f"{self.started_at}, commit {self.commit}, seed {self.seed}. {machine.processor}, {machine.cores} cores, "
            f"{machine.memory_gib:.0f} GiB; {machine.system}; {machine.python}; load at the start "
            f"{machine.load_at_start:.1f}."
        )

    def differences(self) -> list[str]:
        """Return what was wrong, if anything was."""
        lines = [(line.title, point.outcomes) for line in self.materialisation + self.newp for point in line.points]
        runs = [(result.title, result.outcomes) for result in self.twip] + lines
        return [
            f"{title}: {outcome.difference}" for title, outcomes in runs for outcome in outcomes if outcome.difference
        ]

    def to_json(self) -> str:
        """Return everything as one JSON object."""
        return json.dumps(asdict(self), indent=1)


def ratios(result: SystemResult, base: SystemResult) -> Spread:
    """Return how many times longer a system took, repetition by repetition."""
    pairs = zip(result.outcomes, base.outcomes, strict=True)
    return spread([outcome.seconds / beside.seconds for outcome, beside in pairs])


def paper_ratio(result: SystemResult, base: SystemResult) -> float | None:
    """Return the paper's ratio of two systems, None if it has one of them not."""
    theirs, ours = PAPER_RATIOS.get(result.name), PAPER_RATIOS.get(base.name)
    return None if theirs is None or ours is None else theirs / ours


def this_machine() -> Machine:
    """Describe the machine."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load_at_start=round(os.getloadavg()[0], 2),
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def this_commit() -> str:
    """Return the commit of the sources, with ``+`` if they were changed since; ``unknown`` outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")


def this_command() -> str:
    """Return the command line, to be typed again."""
    return " ".join(["pequod", *sys.argv[1:]])
