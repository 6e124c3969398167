"""The whole comparison, section by section: which runs are made, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Literal, TypeVar

from pequod.errors import PequodError
from pequod_bench.engine_twip import run as run_engine
from pequod_bench.paper import freshness, materialisation, newp, openloop
from pequod_bench.paper.comparison import Comparison, Line, LinePoint, StoreResults, SystemResult
from pequod_bench.paper.measure import RunOutcome, client_loop, run_twip
from pequod_bench.paper.scale import CompareScale
from pequod_bench.paper.trials import Trials
from pequod_bench.paper.ycsb_stores import CONTENDERS, run_ycsb
from pequod_bench.report.phases import PhaseCost, Phases
from pequod_bench.report.progress import QUIET, ProgressBars
from pequod_bench.systems.machine import this_command, this_commit, this_machine
from pequod_bench.systems.system import Delivery, Found, System, SystemWorkload
from pequod_bench.systems.systems import SYSTEMS, SYSTEMS_BY_CALL
from pequod_bench.twip import TwipSettings
from pequod_bench.workloads import ycsb
from pequod_bench.workloads.stream import make_stream

Section = Literal["7", "8", "9", "maintenance", "celebrity", "latency", "ycsb"]
Subject = TypeVar("Subject")
Here = Mapping[str, tuple[System, str]]


class UnknownSystemError(PequodError):
    """A name on the command line that no system has."""


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What comparison to make."""

    scale: CompareScale
    #: Names of the systems of figure 7 and of the latencies.
    systems: Sequence[str]
    sections: frozenset[str]
    graph: str = "synthetic"
    tweet_bytes: int = 140
    #: Who gets posts in figure 7 where no join keeps timelines.
    delivery: Delivery = "followers"
    seed: int = 1
    #: Servers and the client run on different cores, where that can be done.
    pin: bool = False


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


def run(settings: StudySettings, bars: ProgressBars, keep: Callable[[Comparison], None] = lambda _: None) -> Comparison:
    """Measure everything that was asked for; ``keep`` gets what there is after each section."""
    here, skipped = chosen(settings.systems)
    with client_loop() as loop:
        trials = Trials(loop, bars, pin=settings.pin)
        found = Comparison(
            command=this_command(),
            commit=this_commit(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=this_machine(),
            seed=settings.seed,
            repetitions=settings.scale.repetitions,
            is_pinned=settings.pin,
            sizes={},
            skipped=skipped,
            failures=trials.failures,
        )
        for section, study in STUDIES.items():
            if section in settings.sections:
                begun = time.monotonic()
                study(settings, here, trials, found)
                found.section_seconds[section] = time.monotonic() - begun
                keep(found)
    return found


def _twip(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    scale = settings.scale
    stream = make_stream(settings.graph, scale.users, scale.ticks, settings.seed)
    found.sizes["7"] = (
        f"{stream.graph.user_count:,} users, {stream.graph.edge_count:,} subscriptions ({stream.graph.name}), "
        f"{stream.tick_count:,} operations, {settings.tweet_bytes}-byte posts, which go to "
        + ("every follower" if settings.delivery == "followers" else "followers who ever check")
    )
    workload = SystemWorkload(stream, settings.tweet_bytes, settings.delivery)
    found.twip = _systems("figure 7", here.values(), workload, scale.repetitions, trials)
    with trials.bars.working("engine alone"):
        twip = TwipSettings(
            settings.graph, scale.users, scale.ticks, settings.seed, settings.tweet_bytes, verify="final"
        )
        for costs in trials.attempt("figure 7", "the engine alone", partial(_phases, twip)):
            found.phases += costs


def _phases(twip: TwipSettings) -> tuple[PhaseCost, ...]:
    """Return what each kind of operation takes in the engine alone."""
    report = run_engine(twip, QUIET, phases=Phases())
    assert report.correct, report.difference
    return report.phases


def _systems(
    section: str, systems: Iterable[tuple[System, str]], workload: SystemWorkload, repetitions: int, trials: Trials
) -> list[SystemResult]:
    """Run Twip on some systems."""
    subjects = {system.title: (system, version) for system, version in systems}

    def run_one(subject: tuple[System, str]) -> RunOutcome:
        return run_twip(subject[0], workload, trials.loop, pin=trials.pin)

    with trials.bars.bar(section, repetitions * len(subjects)) as advance:
        found = trials.interleaved(section, subjects, repetitions, run_one, advance)
    return [
        SystemResult(system.name, system.title, version, system.tuning, found[title])
        for title, (system, version) in subjects.items()
        if title in found
    ]


def _curves(
    section: str,
    xs: Sequence[int],
    subjects: Mapping[str, Subject],
    repetitions: int,
    run_at: Callable[[int], Callable[[Subject], RunOutcome]],
    trials: Trials,
) -> list[Line]:
    """Run all subjects at each x; a subject that fails anywhere has no line."""
    lines: dict[str, list[LinePoint]] = {title: [] for title in subjects}
    with trials.bars.bar(section, len(xs) * len(subjects) * repetitions) as advance:
        for x in xs:
            left = {title: subjects[title] for title in lines}
            found = trials.interleaved(section, left, repetitions, run_at(x), advance)
            lines = {title: [*lines[title], LinePoint(x, found[title])] for title in found}
    return [Line(title, points) for title, points in lines.items()]


def _materialisation(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    del here
    scale = settings.scale
    found.sizes["8"] = f"{scale.materialisation_users:,} users; runs a point: {scale.curve_repetitions}"

    def run_at(percent: int) -> Callable[[System], RunOutcome]:
        stream = materialisation.make_stream(settings.graph, scale.materialisation_users, percent, settings.seed)
        workload = SystemWorkload(stream, settings.tweet_bytes)
        return partial(run_twip, workload=workload, loop=trials.loop, pin=trials.pin)

    strategies: dict[str, System] = {system.title: system for system in materialisation.STRATEGIES}
    found.materialisation = _curves(
        "figure 8", scale.active_percents, strategies, scale.curve_repetitions, run_at, trials
    )


def _newp(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    del here
    scale = settings.scale
    found.sizes["9"] = (
        f"{scale.articles:,} articles, {scale.sessions:,} sessions; runs a point: {scale.curve_repetitions}"
    )

    def run_at(percent: int) -> Callable[[newp.Version], RunOutcome]:
        sessions = newp.make_sessions(scale.articles, scale.sessions, percent, settings.seed)
        return partial(newp.run, sessions=sessions, loop=trials.loop, pin=trials.pin)

    versions: dict[str, newp.Version] = {version: version for version in newp.VERSIONS}
    found.newp = _curves("figure 9", scale.vote_percents, versions, scale.curve_repetitions, run_at, trials)


def _maintenance(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    del here
    scale = settings.scale
    stream = make_stream(settings.graph, scale.variant_users, scale.variant_ticks, settings.seed)
    found.sizes["maintenance"] = f"{stream.graph.user_count:,} users, {stream.tick_count:,} operations"
    systems = [(system, "") for system in materialisation.MAINTENANCE]
    workload = SystemWorkload(stream, settings.tweet_bytes)
    found.maintenance = _systems("maintenance", systems, workload, scale.curve_repetitions, trials)


def _celebrity(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    del here
    scale = settings.scale
    graph = "power-law" if settings.graph == "synthetic" else settings.graph
    stream = make_stream(graph, scale.variant_users, scale.variant_ticks, settings.seed, scale.celebrity_posts)
    found.sizes["celebrity"] = (
        f"{stream.graph.user_count:,} users ({stream.graph.name}), {stream.first_tick:,} posts before the start, "
        f"{stream.tick_count:,} operations"
    )
    systems = [(system, "") for system in materialisation.CELEBRITIES]
    workload = SystemWorkload(stream, settings.tweet_bytes)
    found.celebrities = _systems("celebrity", systems, workload, scale.curve_repetitions, trials)


def _latency(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    scale = settings.scale
    found.sizes["latency"] = (
        f"{scale.latency_users:,} users; {openloop.ACTIVE_PERCENT} checks to a post, {scale.rate_s:g} s at each rate; "
        f"{scale.freshness_posts:,} posts"
    )
    load = openloop.make_load(scale.latency_users, scale.rates, scale.rate_s, settings.seed)
    posts = freshness.make_posts(scale.latency_users, scale.freshness_posts, settings.seed)
    systems = [system for system, _ in here.values() if system in SYSTEMS_BY_CALL]
    with trials.bars.bar("latency", 1 + 2 * len(systems)) as advance:
        found.latencies = trials.attempt("latency", "the generator", lambda: openloop.run_alone(load, trials.loop))
        advance(1)
        for system in systems:
            timed = partial(openloop.run, system, load, trials.loop, pin=trials.pin)
            found.latencies += trials.attempt("latency", system.title, timed)
            advance(1)
            seen = partial(freshness.run, system, posts, trials.loop, pin=trials.pin)
            found.freshness += trials.attempt("freshness", system.title, seen)
            advance(1)


def _ycsb(settings: StudySettings, here: Here, trials: Trials, found: Comparison) -> None:
    del here
    scale = settings.scale
    found.sizes["ycsb"] = (
        f"{scale.records:,} records of {ycsb.RECORD_BYTES:,} bytes, {scale.operations:,} operations; "
        f"runs each: {scale.curve_repetitions}"
    )
    contenders = {contender.system.title: contender for contender in CONTENDERS}
    versions: dict[str, str] = {}
    for title, contender in list(contenders.items()):
        presence = contender.system.find()
        if isinstance(presence, Found):
            versions[title] = presence.version
        else:
            found.skipped[contender.system.name] = presence.reason
            del contenders[title]
    with trials.bars.bar("YCSB", len(ycsb.MIXES) * len(contenders) * scale.curve_repetitions) as advance:
        for mix in ycsb.MIXES:
            operations = ycsb.make_operations(mix, scale.records, scale.operations, settings.seed)
            run_one = partial(run_ycsb, operations=operations, loop=trials.loop, pin=trials.pin)
            runs = trials.interleaved(f"YCSB {mix.letter}", contenders, scale.curve_repetitions, run_one, advance)
            stores = [
                SystemResult(contenders[title].system.name, title, versions[title], contenders[title].tuning, outcomes)
                for title, outcomes in runs.items()
            ]
            found.ycsb.append(StoreResults(mix.letter, mix.text, scale.operations, stores))


#: In the order in which they are made and reported.
STUDIES: Final[dict[Section, Callable[[StudySettings, Here, Trials, Comparison], None]]] = {
    "7": _twip,
    "8": _materialisation,
    "9": _newp,
    "maintenance": _maintenance,
    "celebrity": _celebrity,
    "latency": _latency,
    "ycsb": _ycsb,
}
SECTIONS: Final[tuple[Section, ...]] = tuple(STUDIES)
