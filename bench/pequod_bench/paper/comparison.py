"""Everything that a comparison found, as one object of which the reports are made; and the paper's figures as goals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pequod.errors import SettingError
from pequod_bench.paper.latency import LatencyResult
from pequod_bench.paper.measure import Failure, RunOutcome

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
#: CPU clocks go in steps: a run that is too short for one is counted as one.
CPU_S_MIN: Final = 0.01


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
class Spread:
    """One figure of several runs."""

    median: float
    least: float
    greatest: float

    def __str__(self) -> str:
        if self.least == self.greatest:
            return f"{self.median:.2f}"
        return f"{self.median:.2f} ({self.least:.2f} to {self.greatest:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Sum up the values of several runs."""
    return Spread(statistics.median(values), min(values), max(values))


def of_all(outcomes: Sequence[RunOutcome], figure: Callable[[RunOutcome], float]) -> Spread:
    """Return one figure of several runs."""
    return spread([figure(outcome) for outcome in outcomes])


@dataclass(frozen=True, slots=True)
class LinePoint:
    """One point of a line."""

    x: int | str
    #: One for each repetition, in their order; repetition i of all lines ran one after the other.
    outcomes: list[RunOutcome]

    @property
    def seconds(self) -> Spread:
        return of_all(self.outcomes, lambda outcome: outcome.seconds)


@dataclass(frozen=True, slots=True)
class Line:
    """One system, or one way of using it, over what is varied; figure 7 varies nothing, and has one point."""

    name: str
    title: str
    version: str
    tuning: str
    points: list[LinePoint] = field(default_factory=list)

    @property
    def outcomes(self) -> list[RunOutcome]:
        """The runs of the first point."""
        return self.points[0].outcomes


@dataclass(slots=True)
class Comparison:
    """The whole of it; what is not measured, or not yet, is empty."""

    command: str
    commit: str
    started_at: str
    machine: Machine
    seed: int
    repetitions: int
    #: Sizes of each section, as text.
    sizes: dict[str, str]
    #: Systems that could not be run, and why.
    skipped: dict[str, str]
    #: What was tried and failed.
    failures: list[Failure] = field(default_factory=list)
    #: How long each section took to measure.
    section_seconds: dict[str, float] = field(default_factory=dict)
    twip: list[Line] = field(default_factory=list)
    materialisation: list[Line] = field(default_factory=list)
    newp: list[Line] = field(default_factory=list)
    latencies: list[LatencyResult] = field(default_factory=list)
    #: By the letters of the workloads, and the number of operations of each run.
    ycsb: list[Line] = field(default_factory=list)
    ycsb_operations: int = 0

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    def where(self) -> str:
        """Say in one sentence what was measured, when and where."""
        machine = self.machine
        return (
            f"{self.started_at}, commit {self.commit}, seed {self.seed}. {machine.processor}, {machine.cores} cores, "
            f"{machine.memory_gib:.0f} GiB; {machine.system}; {machine.python}; load at the start "
            f"{machine.load_at_start:.1f}; took {sum(self.section_seconds.values()) / 60:.1f} minutes."
        )

    def differences(self) -> list[str]:
        """Return what was wrong, if anything was."""
        lines = self.twip + self.materialisation + self.newp + self.ycsb
        found = [(one.title, run.difference) for one in lines for point in one.points for run in point.outcomes]
        found += [(result.title, result.difference) for result in self.latencies]
        return [f"{title}: {difference}" for title, difference in found if difference]


def from_json(text: str) -> Comparison:
    """Return the comparison that `Comparison.to_json` wrote.

    Raises:
        SettingError: It did not, or an earlier version did that held other figures.
    """
    try:
        return TypeAdapter(Comparison).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "its beginning"
        raise SettingError("--from", f"this is no compare.json of this version: {first['msg']} at {place}") from error


def ratios(line: Line, base: Line) -> Spread:
    """Return how many times longer a system took, repetition by repetition."""
    pairs = zip(line.outcomes, base.outcomes, strict=True)
    return spread([outcome.seconds / beside.seconds for outcome, beside in pairs])


def server_ratios(line: Line, base: Line) -> Spread:
    """Return how many times more CPU a system's server took, repetition by repetition."""
    pairs = zip(line.outcomes, base.outcomes, strict=True)
    return spread([max(CPU_S_MIN, a.server_cpu_seconds) / max(CPU_S_MIN, b.server_cpu_seconds) for a, b in pairs])


def paper_ratio(line: Line, base: Line) -> float | None:
    """Return the paper's ratio of two systems, None if it has one of them not."""
    theirs, ours = PAPER_RATIOS.get(line.name), PAPER_RATIOS.get(base.name)
    return None if theirs is None or ours is None else theirs / ours


def lost(ahead: Line, rival: Line, percent_max: int) -> list[int | str]:
    """Return where one line is not ahead of another, up to a percentage."""
    pairs = zip(ahead.points, rival.points, strict=True)
    return [own.x for own, other in pairs if int(own.x) <= percent_max and own.seconds.median >= other.seconds.median]


def busiest(outcomes: Sequence[RunOutcome]) -> str:
    """Say which process works for most of the runtime, and for how much of it."""
    server = of_all(outcomes, lambda outcome: outcome.server_cpu_seconds / outcome.seconds).median
    client = of_all(outcomes, lambda outcome: outcome.client_cpu_seconds / outcome.seconds).median
    return f"{'client' if client > server else 'server'} {max(server, client):.0%}"


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that was to be reached: the paper's figures."""

    wanted: str
    found: str
    is_met: bool
    #: What a reader should know beside it: what clients on other machines would see, and which process it waits for.
    beside: str = ""


def goals(comparison: Comparison) -> list[Goal]:
    """Hold the figures against the paper's."""
    found: list[Goal] = []
    for result in comparison.twip[1:]:
        base = comparison.twip[0]
        ratio, paper = ratios(result, base), paper_ratio(result, base)
        if paper is not None:
            ours, theirs = (
                max(CPU_S_MIN, of_all(one.outcomes, lambda outcome: outcome.server_cpu_seconds).median)
                for one in (base, result)
            )
            text = f"{result.title} takes at least {paper:.2f} times {base.title}'s time"
            beside = f"server CPU {theirs / ours:.2f} times; {busiest(result.outcomes)}"
            found.append(Goal(text, str(ratio), ratio.median >= paper, beside))
    lines = {line.title.split(maxsplit=1)[0]: line for line in comparison.materialisation + comparison.newp}
    for ahead, rival, what in (
        ("dynamic", "full", "active users"),
        ("dynamic", "no", "active users"),
        ("interleaved", "separate", "votes"),
    ):
        if ahead in lines and rival in lines:
            behind = lost(lines[ahead], lines[rival], PAPER_AHEAD_PERCENT)
            text = f"{lines[ahead].title} ahead of {lines[rival].title} up to {PAPER_AHEAD_PERCENT} % {what}"
            where = f"behind at {', '.join(f'{x} %' for x in behind)}" if behind else "ahead everywhere"
            found.append(Goal(text, where, not behind))
    return found
