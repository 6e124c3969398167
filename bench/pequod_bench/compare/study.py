"""The whole comparison: which runs are made, how large, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from pequod.engine import PequodError
from pequod_bench.compare import materialisation, newp
from pequod_bench.compare.comparison import (
    Comparison,
    Line,
    Point,
    SystemResult,
    this_command,
    this_commit,
    this_machine,
)
from pequod_bench.compare.measure import Outcome, client_loop, run_twip
from pequod_bench.compare.system import Found, System, Workload
from pequod_bench.compare.systems import SYSTEMS
from pequod_bench.progress import Advance, ProgressBars
from pequod_bench.stream import make_stream

Subject = TypeVar("Subject")


class UnknownSystemError(PequodError):
    """A name on the command line that no system has."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure."""

    users: int = 5_000
    ticks: int = 200_000
    repetitions: int = 3
    #: Of figures 8 and 9, which start a server for every point of every line.
    materialisation_users: int = 1_000
    articles: int = 2_000
    sessions: int = 20_000
    curve_repetitions: int = 3
    active_percents: Sequence[int] = materialisation.ACTIVE_PERCENTS
    vote_percents: Sequence[int] = newp.VOTE_PERCENTS


#: A laptop minute or two.
QUICK = Scale(
    users=1_000,
    ticks=40_000,
    materialisation_users=200,
    articles=200,
    sessions=2_000,
    curve_repetitions=1,
    active_percents=(1, 50, 90, 100),
    vote_percents=(0, 50, 90, 100),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What comparison to make."""

    scale: Scale
    #: Names of the systems of figure 7.
    systems: Sequence[str]
    #: Of 7, 8 and 9.
    figures: frozenset[int]
    graph: str = "synthetic"
    tweet_bytes: int = 140
    seed: int = 1


def chosen(names: Sequence[str]) -> tuple[dict[str, tuple[System, str]], dict[str, str]]:
    """Look up systems by name: those that can be run, with their versions, and why the others cannot.

    Raises:
        UnknownSystemError: There is no such system.
    """
    by_name = {system.name: system for system in SYSTEMS}
    here: dict[str, tuple[System, str]] = {}
    skipped: dict[str, str] = {}
    for name in names:
        if name not in by_name:
            raise UnknownSystemError(f"there is no system {name!r}; there are {', '.join(by_name)}")
        presence = by_name[name].find()
        if isinstance(presence, Found):
            here[name] = by_name[name], presence.version
        else:
            skipped[name] = presence.reason
    return here, skipped


def run(settings: Settings, bars: ProgressBars) -> Comparison:
    """Measure everything that was asked for."""
    scale = settings.scale
    here, skipped = chosen(settings.systems)
    stream = make_stream(settings.graph, scale.users, scale.ticks, settings.seed)
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = this_machine()
    with client_loop() as loop:
        return Comparison(
            command=this_command(),
            commit=this_commit(),
            started_at=started_at,
            machine=machine,
            seed=settings.seed,
            repetitions=scale.repetitions,
            twip_size=(
                f"{stream.graph.user_count:,} users, {stream.graph.edge_count:,} subscriptions ({stream.graph.name}), "
                f"{stream.tick_count:,} operations, {settings.tweet_bytes}-byte posts"
            ),
            materialisation_size=f"{scale.materialisation_users:,} users; runs a point: {scale.curve_repetitions}",
            newp_size=(
                f"{scale.articles:,} articles, {scale.sessions:,} sessions; runs a point: {scale.curve_repetitions}"
            ),
            skipped=skipped,
            twip=(
                _twip(here, Workload(stream, settings.tweet_bytes), scale.repetitions, loop, bars)
                if 7 in settings.figures
                else []
            ),
            materialisation=_materialisation(settings, loop, bars) if 8 in settings.figures else [],
            newp=_newp(settings, loop, bars) if 9 in settings.figures else [],
        )


def _twip(
    here: dict[str, tuple[System, str]],
    workload: Workload,
    repetitions: int,
    loop: asyncio.Runner,
    bars: ProgressBars,
) -> list[SystemResult]:
    systems = [system for system, _ in here.values()]
    with bars.bar("figure 7", repetitions * len(systems)) as advance:
        outcomes = _interleaved(systems, repetitions, partial(run_twip, workload=workload, loop=loop), advance)
    return [
        SystemResult(system.name, system.title, version, system.tuning, found)
        for (system, version), found in zip(here.values(), outcomes, strict=True)
    ]


def _interleaved(
    subjects: Sequence[Subject], repetitions: int, run_one: Callable[[Subject], Outcome], advance: Advance
) -> list[list[Outcome]]:
    """Run all subjects one after the other, then all again: what slows the machine for a while slows all of them."""
    outcomes: list[list[Outcome]] = [[] for _ in subjects]
    for _ in range(repetitions):
        for subject, found in zip(subjects, outcomes, strict=True):
            found.append(run_one(subject))
            advance(1)
    return outcomes


def _materialisation(settings: Settings, loop: asyncio.Runner, bars: ProgressBars) -> list[Line]:
    scale, strategies = settings.scale, materialisation.STRATEGIES
    points: list[list[Point]] = [[] for _ in strategies]
    steps = len(scale.active_percents) * len(strategies) * scale.curve_repetitions
    with bars.bar("figure 8", steps) as advance:
        for percent in scale.active_percents:
            stream = materialisation.make_stream(settings.graph, scale.materialisation_users, percent, settings.seed)
            workload = Workload(stream, settings.tweet_bytes)
            outcomes = _interleaved(
                strategies, scale.curve_repetitions, partial(run_twip, workload=workload, loop=loop), advance
            )
            for line, found in zip(points, outcomes, strict=True):
                line.append(Point(percent, found))
    return [Line(system.title, line) for system, line in zip(strategies, points, strict=True)]


def _newp(settings: Settings, loop: asyncio.Runner, bars: ProgressBars) -> list[Line]:
    scale, versions = settings.scale, newp.VERSIONS
    points: list[list[Point]] = [[] for _ in versions]
    steps = len(scale.vote_percents) * len(versions) * scale.curve_repetitions
    with bars.bar("figure 9", steps) as advance:
        for percent in scale.vote_percents:
            sessions = newp.make_sessions(scale.articles, scale.sessions, percent, settings.seed)
            outcomes = _interleaved(
                versions, scale.curve_repetitions, partial(newp.run, sessions=sessions, loop=loop), advance
            )
            for line, found in zip(points, outcomes, strict=True):
                line.append(Point(percent, found))
    return [Line(version, line) for version, line in zip(versions, points, strict=True)]
