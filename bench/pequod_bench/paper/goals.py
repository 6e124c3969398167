"""The paper's figures as goals: what was wanted, what was found, and whether that is met."""

from __future__ import annotations

from dataclasses import dataclass

from pequod_bench.paper.comparison import (
    PAPER_AHEAD_PERCENT,
    Comparison,
    Line,
    SystemResult,
    paper_ratio,
    ratios,
)
from pequod_bench.paper.tables import busiest, figure_text, of_all


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that was to be reached: the paper's figures."""

    wanted: str
    found: str
    is_met: bool
    #: What a reader should know beside it.
    beside: str = ""


def goals(comparison: Comparison) -> list[Goal]:
    """Hold the figures against the paper's."""
    found: list[Goal] = []
    for result in comparison.twip[1:]:
        ratio, paper = ratios(result, comparison.twip[0]), paper_ratio(result, comparison.twip[0])
        if paper is not None:
            text = f"{result.title} takes at least {paper:.2f} times {comparison.twip[0].title}'s time"
            found.append(Goal(text, figure_text(ratio), ratio.median >= paper, _beside(comparison.twip[0], result)))
    lines = {line.title.split(maxsplit=1)[0]: line for line in comparison.materialisation + comparison.newp}
    for ahead, rival, what in (
        ("dynamic", "full", "active users"),
        ("dynamic", "no", "active users"),
        ("interleaved", "separate", "votes"),
    ):
        if ahead in lines and rival in lines:
            lost = [
                point.x
                for point in lines[ahead].points
                if point.x <= PAPER_AHEAD_PERCENT and not _is_ahead(lines[ahead], lines[rival], point.x)
            ]
            text = f"{lines[ahead].title} ahead of {lines[rival].title} up to {PAPER_AHEAD_PERCENT} % {what}"
            behind = f"behind at {', '.join(f'{x} %' for x in lost)}" if lost else "ahead everywhere"
            found.append(Goal(text, behind, not lost))
    return found


def _beside(base: SystemResult, other: SystemResult) -> str:
    """Say what clients on other machines would see, and which process a system waits for."""
    # CPU clocks go in steps: a run that is too short for one is counted as one.
    ours, server = (
        max(0.01, of_all(result.outcomes, lambda outcome: outcome.server_cpu_seconds).median)
        for result in (base, other)
    )
    return f"server CPU {server / ours:.2f} times; {busiest(other.outcomes)}"


def _is_ahead(line: Line, rival: Line, x: int) -> bool:
    return _seconds(line, x) < _seconds(rival, x)


def _seconds(line: Line, x: int) -> float:
    point = next(point for point in line.points if point.x == x)
    return of_all(point.outcomes, lambda outcome: outcome.seconds).median
