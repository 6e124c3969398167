"""The whole comparison, section by section: which runs are made, and in which order."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import psutil

from pequod.errors import SettingError
from pequod_bench import settings as sizes
from pequod_bench.paper import latency, materialisation, newp
from pequod_bench.paper.comparison import Comparison, Line, LinePoint, Machine
from pequod_bench.paper.measure import RunOutcome, Trials, run_twip, trying
from pequod_bench.paper.ycsb_stores import CONTENDERS, Contender, run_ycsb
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import SECTIONS, CompareScale, CompareSettings
from pequod_bench.systems.memcached_system import MemcachedSystem
from pequod_bench.systems.pequod_system import CLIENT_PEQUOD, PEQUOD
from pequod_bench.systems.postgres_system import POSTGRES, POSTGRES_CALLS, POSTGRES_QUERY
from pequod_bench.systems.redis_system import RedisSystem
from pequod_bench.systems.system import Found, System, SystemWorkload
from pequod_bench.workloads import ycsb
from pequod_bench.workloads.stream import make_stream

Subject = TypeVar("Subject")
X = TypeVar("X", int, str)

#: In the order of the paper's figure; ratios are to the first.
SYSTEMS: Final[tuple[System, ...]] = (
    PEQUOD,
    RedisSystem(),
    CLIENT_PEQUOD,
    MemcachedSystem(),
    POSTGRES,
    POSTGRES_CALLS,
    POSTGRES_QUERY,
)
#: Those that differ where every operation goes by itself.
SYSTEMS_BY_CALL: Final = tuple(system for system in SYSTEMS if system is not POSTGRES_CALLS)


@dataclass(frozen=True, slots=True)
class Study:
    """What is compared."""

    settings: CompareSettings
    scale: CompareScale
    sections: frozenset[str]
    #: Systems that can be run, with their versions, and why others cannot.
    here: Sequence[tuple[System, str]]
    skipped: Mapping[str, str]


def plan(settings: CompareSettings) -> Study:
    """Look up what was named."""
    if settings.quick and settings.reference:
        raise SettingError("--quick", "--reference is another size: take one")
    scale = sizes.QUICK if settings.quick else sizes.REFERENCE if settings.reference else sizes.FEW_MINUTES
    scale = replace(
        scale,
        users=settings.users or scale.users,
        ticks=settings.ticks or scale.ticks,
        repetitions=settings.repeat or scale.repetitions,
        curve_repetitions=settings.repeat or scale.curve_repetitions,
    )
    sections = frozenset(part.strip() for part in settings.figures.split(","))
    if not sections <= set(SECTIONS):
        raise SettingError(
            "--figures", f"takes {', '.join(SECTIONS)}, with commas between them, not {settings.figures!r}"
        )
    by_name = {system.name: system for system in SYSTEMS}
    names = [name.strip() for name in settings.systems.split(",") if name.strip()]
    if unknown := [name for name in names if name not in by_name]:
        raise SettingError("--systems", f"there is no system {unknown[0]!r}; there are {', '.join(by_name)}")
    here, skipped = _present([by_name[name] for name in names])
    return Study(settings, scale, sections, here, skipped)


def _present(systems: Iterable[System]) -> tuple[list[tuple[System, str]], dict[str, str]]:
    """Return the systems that can be run, with their versions, and why the others cannot."""
    here: list[tuple[System, str]] = []
    skipped: dict[str, str] = {}
    for system in systems:
        presence = system.find()
        if isinstance(presence, Found):
            here.append((system, presence.version))
        else:
            skipped[system.name] = presence.reason
    return here, skipped


def run(study: Study, bars: ProgressBars, keep: Callable[[Comparison], None] = lambda _: None) -> Comparison:
    """Measure everything that was asked for; ``keep`` gets what there is after each section."""
    settings = study.settings
    with trying(bars) as trials:
        found = Comparison(
            command=" ".join(["pequod", *sys.argv[1:]]),
            commit=_commit(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=_machine(),
            seed=settings.seed,
            repetitions=study.scale.repetitions,
            sizes={},
            skipped=dict(study.skipped),
            failures=trials.failures,
        )
        for section, measure in _STUDIES.items():
            if section in study.sections:
                begun = time.monotonic()
                found.sizes[section] = measure(study, trials, found)
                found.section_seconds[section] = time.monotonic() - begun
                keep(found)
    return found


def _machine() -> Machine:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=names[0] if names else platform.processor() or "unknown",
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load_at_start=round(os.getloadavg()[0], 2),
    )


def _commit() -> str:
    """Return the commit of the sources, with ``+`` if they were changed since; ``unknown`` outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, status = (
            subprocess.run([*git, *arguments], capture_output=True, text=True, check=True).stdout.strip()
            for arguments in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if status else "")


def _twip(study: Study, trials: Trials, found: Comparison) -> str:
    settings, scale = study.settings, study.scale
    stream = make_stream(settings.graph, scale.users, scale.ticks, settings.seed)
    workload = SystemWorkload(stream, settings.tweet_bytes, settings.delivery)
    run_one = partial(run_twip, workload=workload, trials=trials)
    subjects = [(_line(system, version), system) for system, version in study.here]
    found.twip = _lines("figure 7", (0,), subjects, scale.repetitions, lambda _: run_one, trials)
    receivers = "every follower" if settings.delivery == "followers" else "followers who ever check"
    return (
        f"{stream.graph.user_count:,} users, {stream.graph.edge_count:,} subscriptions ({stream.graph.name}), "
        f"{stream.tick_count:,} operations, {settings.tweet_bytes}-byte posts, which go to {receivers}"
    )


def _line(system: System, version: str = "", tuning: str = "") -> Line:
    return Line(system.name, system.title, version, tuning or system.tuning)


def _lines(
    section: str,
    xs: Sequence[X],
    subjects: Sequence[tuple[Line, Subject]],
    repetitions: int,
    run_at: Callable[[X], Callable[[Subject], RunOutcome]],
    trials: Trials,
) -> list[Line]:
    """Run all subjects at each x, and return their lines; a subject that fails anywhere has none."""
    lines = {line.title: line for line, _ in subjects}
    left = {line.title: subject for line, subject in subjects}
    with trials.bars.bar(section, len(xs) * len(subjects) * repetitions) as advance:
        for x in xs:
            found = trials.interleaved(section, left, repetitions, run_at(x), advance)
            left = {title: left[title] for title in found}
            for title, outcomes in found.items():
                lines[title].points.append(LinePoint(x, outcomes))
    return [lines[title] for title in left]


def _materialisation(study: Study, trials: Trials, found: Comparison) -> str:
    settings, scale = study.settings, study.scale

    def run_at(percent: int) -> Callable[[System], RunOutcome]:
        stream = materialisation.make_stream(settings.graph, scale.materialisation_users, percent, settings.seed)
        return partial(run_twip, workload=SystemWorkload(stream, settings.tweet_bytes), trials=trials)

    ways = [(_line(system), system) for system in materialisation.STRATEGIES]
    found.materialisation = _lines("figure 8", scale.active_percents, ways, scale.curve_repetitions, run_at, trials)
    return f"{scale.materialisation_users:,} users; runs a point: {scale.curve_repetitions}"


def _newp(study: Study, trials: Trials, found: Comparison) -> str:
    scale = study.scale

    def run_at(percent: int) -> Callable[[newp.Version], RunOutcome]:
        sessions = newp.make_sessions(scale.articles, scale.sessions, percent, study.settings.seed)
        return partial(newp.run_newp, sessions=sessions, trials=trials)

    versions = [(Line(version, version, "", ""), version) for version in newp.JOINS]
    found.newp = _lines("figure 9", scale.vote_percents, versions, scale.curve_repetitions, run_at, trials)
    return f"{scale.articles:,} articles, {scale.sessions:,} sessions; runs a point: {scale.curve_repetitions}"


def _latency(study: Study, trials: Trials, found: Comparison) -> str:
    scale, seed = study.scale, study.settings.seed
    load = latency.make_load(scale.latency_users, scale.rates, scale.rate_s, seed)
    systems = [system for system, _ in study.here if system in SYSTEMS_BY_CALL]
    with trials.bars.bar("latency", 1 + len(systems)) as advance:
        found.latencies = trials.attempt("latency", "the generator", partial(latency.run_alone, load, trials))
        advance(1)
        for system in systems:
            rates = partial(latency.run_rates, system, load, trials)
            found.latencies += trials.attempt("latency", system.title, rates)
            advance(1)
    return f"{scale.latency_users:,} users; {latency.ACTIVE_PERCENT} checks to a post, {scale.rate_s:g} s at each rate"


def _ycsb(study: Study, trials: Trials, found: Comparison) -> str:
    scale, mixes = study.scale, {mix.letter: mix for mix in ycsb.MIXES}
    here, skipped = _present(contender.system for contender in CONTENDERS)
    found.skipped |= skipped
    versions = {system.title: version for system, version in here}

    def run_at(letter: str) -> Callable[[Contender], RunOutcome]:
        operations = ycsb.make_operations(mixes[letter], scale.records, scale.operations, study.settings.seed)
        return partial(run_ycsb, operations=operations, trials=trials)

    stores = [
        (_line(one.system, versions[one.system.title], one.tuning), one)
        for one in CONTENDERS
        if one.system.title in versions
    ]
    found.ycsb = _lines("YCSB", list(mixes), stores, scale.curve_repetitions, run_at, trials)
    found.ycsb_operations = scale.operations
    return (
        f"{scale.records:,} records of {ycsb.RECORD_BYTES:,} bytes, {scale.operations:,} operations; "
        f"runs each: {scale.curve_repetitions}"
    )


#: In the order in which they are made and reported; each returns its size as text.
_STUDIES: Final[dict[str, Callable[[Study, Trials, Comparison], str]]] = dict(
    zip(SECTIONS, (_twip, _materialisation, _newp, _latency, _ycsb), strict=True)
)
