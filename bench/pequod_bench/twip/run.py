"""A run of Twip: prepare, load, time, verify, report; against a server, or in the engine of this process.

Against a server, this process is the one client. The commands go out in batches through the client's batch stream,
``window`` of them under way at once: the server works on one while the next is already there. They run in the order of
their sending, so what each check must return is still certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pequod_grammar import parse

from pequod.client import AsyncClient, Result
from pequod.commands.kinds import PUT
from pequod.engine import Engine
from pequod.errors import PequodError, SettingError
from pequod_bench.collector import resting_collector
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import TwipRunSettings
from pequod_bench.systems.server import Stopwatch, listening_pid, loop_factory, seen_usage, started_server
from pequod_bench.twip.prepared import SCAN_BATCH, Prepared, prepare
from pequod_bench.twip.report import TwipReport, TwipRun, report
from pequod_bench.twip.sending import TIMEOUT_S, execute_all
from pequod_bench.workloads.stream import CommandBatch, timeline_scans
from pequod_bench.workloads.verify import Reply


class NotEmptyError(PequodError):
    """The server that was named holds keys or joins, which would change what the run finds."""


def _in_plain_text(target: str) -> AsyncClient:
    return AsyncClient(target, timeout_s=TIMEOUT_S)


def run(
    settings: TwipRunSettings,
    bars: ProgressBars,
    connect: Callable[[str], AsyncClient] = _in_plain_text,
    flags: Sequence[str] = (),
) -> TwipReport:
    """Run Twip against the server that the settings name, one that is started for the run, or in the engine.

    Args:
        connect: Returns a client of the server that is named; one that is started is reached in plain text.
        flags: Options of a server that is started.
    """
    if settings.in_process and settings.target is not None:
        raise SettingError("--target", "--in-process has no server: leave out one of them")
    with bars.working("preparing"):
        prepared = prepare(replace(settings, window=0) if settings.in_process else settings)
    if settings.in_process:
        name, found = "engine-twip", _run_in_process(prepared, bars)
    else:
        name, found = "twip", _run_on_server(prepared, settings, bars, connect, flags)
    with bars.working("verifying"):
        return report(name, prepared, found)


def _run_on_server(
    prepared: Prepared,
    settings: TwipRunSettings,
    bars: ProgressBars,
    connect: Callable[[str], AsyncClient],
    flags: Sequence[str],
) -> TwipRun:
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory(settings.client_loop)))
        target, pid = settings.target, None
        if target is None:
            loop = ["--no-uvloop"] if settings.server_loop == "asyncio" else []
            target, pid = stack.enter_context(started_server(*loop, *flags))
            connect = _in_plain_text
        else:
            pid = listening_pid(target)
        return runner.run(_run(prepared, connect(target), pid, bars))


async def _run(prepared: Prepared, client: AsyncClient, pid: int | None, bars: ProgressBars) -> TwipRun:
    window = prepared.settings.window
    async with client:
        if await client.joins() or await client.count(b""):
            raise NotEmptyError(f"the server at {client.target} holds keys or joins; Twip needs an empty one")
        await client.add_join(prepared.joins)
        loading = Stopwatch()
        with bars.bar("loading", prepared.load_count) as advance:
            await execute_all(client, prepared.loads(), window, advance)
        load_s = loading.seconds()
        with bars.bar("running", prepared.command_count) as advance, resting_collector():
            before = seen_usage(pid)
            watch = Stopwatch()
            replies = await execute_all(client, prepared.batches, window, advance)
            seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
            after = seen_usage(pid)
        scans = timeline_scans(prepared.stream, SCAN_BATCH)
        with bars.bar("reading", len(prepared.stream.active)) as advance:
            timelines = await execute_all(client, scans, window, advance)
    return TwipRun(load_s, seconds, cpu_s, (before, after), replies, timelines)


def _run_in_process(prepared: Prepared, bars: ProgressBars) -> TwipRun:
    engine = Engine()
    engine.add_joins(parse(prepared.joins))
    loading = Stopwatch()
    for batch in prepared.loads():
        execute(engine, batch)
    load_s = loading.seconds()
    replies: list[Reply] = []
    with bars.bar("running", len(prepared.batches)) as advance, resting_collector():
        watch = Stopwatch()
        for batch in prepared.batches:
            replies.append(execute(engine, batch))
            advance(1)
        seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
    timelines = [execute(engine, batch) for batch in timeline_scans(prepared.stream, SCAN_BATCH)]
    return TwipRun(load_s, seconds, cpu_s, (None, None), replies, timelines)


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
