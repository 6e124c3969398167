"""Everything that a comparison found, as one object; the reports are made of it alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pydantic import TypeAdapter, ValidationError

from pequod.errors import PequodError
from pequod_bench.paper.freshness import Freshness
from pequod_bench.paper.measure import RunOutcome
from pequod_bench.paper.openloop import LatencyResult
from pequod_bench.paper.trials import Failure
from pequod_bench.report.phases import PhaseCost
from pequod_bench.report.printed import Printed
from pequod_bench.systems.machine import Machine

#: Runtime as a multiple of Pequod's, in the paper's figure 7.
PAPER_RATIOS: Final = {
    "pequod": 1.0,
    "redis": 1.33,
    "client-pequod": 1.64,
    "memcached": 3.98,
    "postgres": 9.55,
    "postgres-calls": 9.55,
}
#: Up to this share the paper has dynamic materialisation (figure 8) and interleaved joins (figure 9) ahead.
PAPER_AHEAD_PERCENT: Final = 90


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
    """One system, or one way of using it, on one workload."""

    name: str
    title: str
    version: str
    tuning: str
    #: One for each repetition, in their order; repetition i of all systems ran one after the other.
    outcomes: list[RunOutcome]


@dataclass(frozen=True, slots=True)
class LinePoint:
    """One point of a line."""

    x: int
    outcomes: list[RunOutcome]


@dataclass(frozen=True, slots=True)
class Line:
    """One way of doing things, over what is varied."""

    title: str
    points: list[LinePoint]


@dataclass(frozen=True, slots=True)
class StoreResults:
    """All stores on one of YCSB's workloads."""

    letter: str
    text: str
    #: Of each run. A store may need two commands for one, as Redis does for an insert.
    operation_count: int
    stores: list[SystemResult]


@dataclass(slots=True)
class Comparison(Printed):
    """The whole of it; what is not measured, or not yet, is empty."""

    indent: ClassVar[int | None] = 1
    command: str
    commit: str
    started_at: str
    machine: Machine
    seed: int
    repetitions: int
    is_pinned: bool
    #: Sizes of each section, as text.
    sizes: dict[str, str]
    #: Systems that could not be run, and why.
    skipped: dict[str, str]
    #: What was tried and failed.
    failures: list[Failure] = field(default_factory=list)
    #: How long each section took to measure.
    section_seconds: dict[str, float] = field(default_factory=dict)
    twip: list[SystemResult] = field(default_factory=list)
    #: What figure 7's operations cost in the engine alone, by kind.
    phases: list[PhaseCost] = field(default_factory=list)
    materialisation: list[Line] = field(default_factory=list)
    newp: list[Line] = field(default_factory=list)
    maintenance: list[SystemResult] = field(default_factory=list)
    celebrities: list[SystemResult] = field(default_factory=list)
    latencies: list[LatencyResult] = field(default_factory=list)
    freshness: list[Freshness] = field(default_factory=list)
    ycsb: list[StoreResults] = field(default_factory=list)

    def where(self) -> str:
        """Say in one sentence what was measured, when and where."""
        machine = self.machine
        return (
            f"{self.started_at}, commit {self.commit}, seed {self.seed}. {machine.processor}, {machine.cores} cores, "
            f"{machine.memory_gib:.0f} GiB; {machine.system}; {machine.python}; load at the start "
            f"{machine.load_at_start:.1f}; took {sum(self.section_seconds.values()) / 60:.1f} "
            "minutes."
        )

    def differences(self) -> list[str]:
        """Return what was wrong, if anything was."""
        lines = [(line.title, point.outcomes) for line in self.materialisation + self.newp for point in line.points]
        results = self.twip + self.maintenance + self.celebrities
        results += [store for workload in self.ycsb for store in workload.stores]
        runs = [(result.title, result.outcomes) for result in results] + lines
        found = [(title, outcome.difference) for title, outcomes in runs for outcome in outcomes]
        found += [(result.title, result.difference) for result in self.latencies]
        found += [(result.title, result.difference) for result in self.freshness]
        return [f"{title}: {difference}" for title, difference in found if difference]


class UnreadableReportError(PequodError):
    """A file is not a comparison's JSON."""


def from_json(text: str) -> Comparison:
    """Return the comparison that `Comparison.to_json` wrote.

    Raises:
        UnreadableReportError: It did not, or an earlier version did that held other figures.
    """
    try:
        return TypeAdapter(Comparison).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its beginning"
        raise UnreadableReportError(f"this is no compare.json of this version: {first['msg']} at {place}") from error


def ratios(result: SystemResult, base: SystemResult) -> Spread:
    """Return how many times longer a system took, repetition by repetition."""
    pairs = zip(result.outcomes, base.outcomes, strict=True)
    return spread([outcome.seconds / beside.seconds for outcome, beside in pairs])


def server_ratios(result: SystemResult, base: SystemResult) -> Spread:
    """Return how many times more CPU a system's server took, repetition by repetition."""
    pairs = zip(result.outcomes, base.outcomes, strict=True)
    # CPU clocks go in steps: a run that is too short for one is counted as one.
    return spread([max(0.01, a.server_cpu_seconds) / max(0.01, b.server_cpu_seconds) for a, b in pairs])


def paper_ratio(result: SystemResult, base: SystemResult) -> float | None:
    """Return the paper's ratio of two systems, None if it has one of them not."""
    theirs, ours = PAPER_RATIOS.get(result.name), PAPER_RATIOS.get(base.name)
    return None if theirs is None or ours is None else theirs / ours
