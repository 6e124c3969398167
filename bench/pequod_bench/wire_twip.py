"""Twip against a server: one server process, and this process as the one client.

The commands go out in batches through the client's batch stream, ``window`` of them under way at once: the server
works on one while the next is already there. They run in the order of their sending, so what each check must
return is still certain.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

import psutil

from pequod.client import AsyncClient, Results
from pequod.errors import PequodError
from pequod_bench.process import Usage, listening_pid, loop_factory, server_arguments, started_server, usage
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.report.twip import TwipReport
from pequod_bench.twip import (
    LOAD_BATCH,
    SCAN_BATCH,
    Prepared,
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

#: First checks of a graph with large timelines may take a while.
TIMEOUT_S: Final = 120.0


class NotEmptyError(PequodError):
    """The server that was named holds keys or joins, which would change what the run finds."""


def connect(target: str) -> AsyncClient:
    """Return a client that reaches ``target`` in plain text."""
    return AsyncClient(target, timeout_s=TIMEOUT_S)


def run(
    settings: TwipSettings, target: str | None, bars: ProgressBars, connect_to: Callable[[str], AsyncClient] = connect
) -> TwipReport:
    """Run Twip against the server at ``target``, or one that is started for the run.

    Args:
        connect_to: Returns a client of ``target``. A server that is started is reached in plain text.
    """
    with bars.working("preparing"):
        prepared = prepare(settings)
    pid: int | None
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory(settings.client_loop)))
        if target is None:
            address, pid = stack.enter_context(started_server(*server_arguments(settings.server_loop)))
            client = connect(address)
        else:
            client, pid = connect_to(target), listening_pid(target)
        found = runner.run(_run(prepared, client, pid, bars))
    with bars.working("verifying"):
        return report("twip", prepared, found)


async def _run(prepared: Prepared, client: AsyncClient, pid: int | None, bars: ProgressBars) -> TwipRun:
    settings = prepared.settings
    async with client:
        if await client.joins() or await client.count(b""):
            raise NotEmptyError(f"the server at {client.target} holds keys or joins; Twip needs an empty one")
        await client.add_join(settings.join_text or JOINS[settings.mode])
        loading = Stopwatch()
        with bars.bar("loading", prepared.load_count) as advance:
            batches = load_batches(prepared.stream, settings.tweet_bytes, LOAD_BATCH)
            await execute_all(client, batches, settings.window, advance)
        load_s = loading.seconds()
        with bars.bar("running", prepared.command_count) as advance, resting_collector():
            before = _usage(pid)
            watch = Stopwatch()
            replies = await execute_all(client, prepared.batches, settings.window, advance)
            seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
            after = _usage(pid)
        scans = timeline_scans(prepared.stream, SCAN_BATCH)
        with bars.bar("reading", len(prepared.stream.active)) as advance:
            timelines = await execute_all(client, scans, settings.window, advance)
    server = (before, after) if before and after else None
    return TwipRun(load_s, seconds, cpu_s, server, replies, timelines)


async def execute_all(
    client: AsyncClient, batches: Iterable[CommandBatch], window: int, advance: Advance
) -> list[Reply]:
    """Send batches with ``window`` of them under way, and return their results."""
    replies: list[Reply] = []
    waiting: deque[asyncio.Future[Results]] = deque()

    async def take() -> None:
        reply = await waiting.popleft()
        replies.append(reply)
        advance(len(reply))

    try:
        for kinds, arguments in batches:
            if len(waiting) == window:
                await take()
            batch = client.batch()
            batch.kinds += kinds
            batch.arguments += arguments
            waiting.append(batch.send())
        while waiting:
            await take()
    finally:
        # After an error or Ctrl-C no code takes the batches that are still under way.
        for future in waiting:
            future.cancel()
    return replies


def _usage(pid: int | None) -> Usage | None:
    try:
        return None if pid is None else usage(pid)
    except psutil.Error:
        return None
