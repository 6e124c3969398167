"""Twip driven straight into the engine, in one process and without a wire: what the engine alone costs."""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pequod_grammar import parse

from pequod.client import Result
from pequod.commands.kinds import PUT
from pequod.engine import Engine
from pequod_bench.report.phases import Phases
from pequod_bench.report.progress import ProgressBars
from pequod_bench.report.twip import TwipReport
from pequod_bench.twip import (
    LOAD_BATCH,
    SCAN_BATCH,
    Stopwatch,
    TwipRun,
    TwipSettings,
    prepare,
    report,
    resting_collector,
)
from pequod_bench.workloads.commands import CommandBatch, load_batches, timeline_scans
from pequod_bench.workloads.keys import JOINS
from pequod_bench.workloads.verify import Reply

#: Lines of the profile that are worth reading.
PROFILE_LINES: Final = 35


def run(
    settings: TwipSettings, bars: ProgressBars, profile: cProfile.Profile | None = None, phases: Phases | None = None
) -> TwipReport:
    """Run Twip inside this process; ``profile`` and ``phases``, if given, watch the timed part."""
    with bars.working("preparing"):
        prepared = prepare(settings)
    engine = Engine()
    engine.add_joins(parse(settings.join_text or JOINS[settings.mode]))
    load_watch = Stopwatch()
    with bars.bar("loading", prepared.load_count) as advance:
        for batch in load_batches(prepared.stream, settings.tweet_bytes, LOAD_BATCH):
            execute(engine, batch)
            advance(len(batch.kinds))
    load_s = load_watch.seconds()
    replies: list[Reply] = []
    carry_out = execute if phases is None else phases.execute
    with bars.bar("running", len(prepared.batches)) as advance, resting_collector():
        if profile is not None:
            profile.enable()
        watch = Stopwatch()
        for batch in prepared.batches:
            replies.append(carry_out(engine, batch))
            advance(1)
        seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
        if profile is not None:
            profile.disable()
    timelines = execute_all(engine, timeline_scans(prepared.stream, SCAN_BATCH))
    with bars.working("verifying"):
        found = report("engine-twip", prepared, TwipRun(load_s, seconds, cpu_s, None, replies, timelines))
    return found if phases is None else replace(found, phases=phases.costs(found.ticks))


def execute_all(engine: Engine, batches: Iterable[CommandBatch]) -> list[Reply]:
    """Carry out batches one after the other."""
    return [execute(engine, batch) for batch in batches]


def execute(engine: Engine, batch: CommandBatch) -> Reply:
    """Carry out a batch, command by command."""
    put, scan = engine.put, engine.scan
    results: list[Result] = []
    arguments = batch.arguments
    for kind, key, argument in zip(batch.kinds, arguments[::2], arguments[1::2], strict=True):
        if kind == PUT:
            put(key, argument)
            results.append(None)
        else:
            results.append(scan(key, argument))
    return results


def profile_text(profile: cProfile.Profile) -> str:
    """Return the functions that took the most time themselves."""
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)
    return text.getvalue()
