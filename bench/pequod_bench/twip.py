"""A run of Twip: prepare, load, time, verify, report; against a server, or in the engine of this process.

Against a server, this process is the one client. The commands go out in batches through the client's batch stream,
``window`` of them under way at once: the server works on one while the next is already there. They run in the order of
their sending, so what each check must return is still certain.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pequod_grammar import parse
from pequod_workloads.twip import JOINS, PUSH_JOIN
from rich.console import Console

from pequod.client import AsyncClient, Result, Results
from pequod.commands.kinds import PUT, SCAN
from pequod.engine import Engine
from pequod.errors import PequodError, SettingError
from pequod.freshness import Freshness as Level
from pequod_bench.collector import resting_collector
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.settings import TwipRunSettings, TwipSettings
from pequod_bench.systems.server import Usage, listening_pid, loop_factory, seen_usage, started_server
from pequod_bench.workloads import stream as operations
from pequod_bench.workloads import verify as answers
from pequod_bench.workloads.stream import CommandBatch, TwipStream, timeline_scans
from pequod_bench.workloads.verify import Reply, Verdict

#: Puts a message while the graph is loaded.
LOAD_BATCH: Final = 512
#: Whole timelines a message when the final ones are read: far fewer, since these are long.
SCAN_BATCH: Final = 16
#: First checks of a graph with large timelines may take a while.
TIMEOUT_S: Final = 120.0


class NotEmptyError(PequodError):
    """The server that was named holds keys or joins, which would change what the run finds."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is made before a store is touched."""

    settings: TwipSettings
    stream: TwipStream
    batches: list[CommandBatch]
    #: The declarations to install.
    joins: str = PUSH_JOIN

    @property
    def load_count(self) -> int:
        return self.stream.graph.edge_count + self.stream.first_tick

    @property
    def command_count(self) -> int:
        """How many commands are timed; logouts are none."""
        return sum(len(batch.kinds) for batch in self.batches)

    def loads(self) -> Iterable[CommandBatch]:
        """Return the puts of what is there before the start."""
        return operations.load_batches(self.stream, self.settings.tweet_bytes, LOAD_BATCH)


@dataclass(frozen=True, slots=True)
class TwipRun:
    """What a store did with what was prepared."""

    load_s: float
    seconds: float
    client_cpu_s: float
    #: The server before and after the timed part, if it can be looked at.
    server: tuple[Usage | None, Usage | None]
    #: One for each prepared batch.
    replies: list[Reply]
    #: The final timelines, asked for with `timeline_scans` in batches of ``SCAN_BATCH``.
    timelines: list[Reply]


class Stopwatch:
    """Wall and CPU time of this process since it was started."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu


@dataclass(frozen=True, slots=True, kw_only=True)
class TwipOutcome(Printed):
    """What every run of Twip tells; `seconds` and what follows from it cover the timed part alone."""

    #: Where the graph comes from, and its size.
    graph: str
    users: int
    edges: int
    #: Operations of the model, of every kind, and how long they took.
    ticks: int
    seconds: float
    ticks_per_s: float
    #: Rows of all active users' timelines at the end.
    timeline_rows: int
    #: Whether all that was compared is what it must be, and the first thing that is not; empty if correct.
    correct: bool
    difference: str

    def fault(self) -> str:
        return self.difference


def outcome(prepared: Prepared, seconds: float, timeline_rows: int, difference: str) -> dict[str, Any]:
    """Return the fields of a `TwipOutcome`."""
    stream = prepared.stream
    return {
        "graph": stream.graph.name,
        "users": stream.graph.user_count,
        "edges": stream.graph.edge_count,
        "ticks": stream.tick_count,
        "seconds": seconds,
        "ticks_per_s": stream.tick_count / seconds,
        "timeline_rows": timeline_rows,
        "correct": not difference,
        "difference": difference,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TwipReport(TwipOutcome):
    """The figures of one run on a server, or in an engine."""

    workload: str
    active_users: int
    seed: int
    tweet_bytes: int
    mode: str
    #: Commands a message, and messages under way at once; window 0 if there is no wire.
    batch: int
    window: int
    #: How long the graph's subscriptions and the initial posts took to load.
    load_seconds: float
    checks: int
    full_checks: int
    checks_per_s: float
    subscribes: int
    posts: int
    logouts: int
    #: Rows that the checks returned.
    rows: int
    #: None if the server is not a process of this machine that we may look at.
    server_cpu_us_per_tick: float | None
    server_rss_mib: float | None
    client_cpu_us_per_tick: float
    #: How many checks of the run were compared row by row with what they must have been.
    checks_verified: int

    def print_table(self, console: Console) -> None:
        rss = "unknown" if self.server_rss_mib is None else f"{self.server_rss_mib:,.0f} MiB"
        cpu = "unknown" if self.server_cpu_us_per_tick is None else f"{self.server_cpu_us_per_tick:.2f} µs"
        writes = f"{self.posts:,} posts of {self.tweet_bytes} bytes, {self.subscribes:,} subscribes"
        wire = f", {self.batch} commands a batch, {self.window} at once" if self.window else ""
        lines = [
            ("users", f"{self.users:,}", f"{self.active_users:,} active, {self.edges:,} subscriptions"),
            ("loaded in", f"{self.load_seconds:.1f} s", f"server memory at the end {rss}"),
            ("ticks", f"{self.ticks:,}", writes),
            ("seconds", f"{self.seconds:.2f}", f"{self.mode} join{wire}"),
            ("ticks/s", f"{self.ticks_per_s:,.0f}", f"seed {self.seed}"),
            ("checks/s", f"{self.checks_per_s:,.0f}", f"{self.full_checks:,} at login, {self.rows:,} rows returned"),
            ("server CPU a tick", cpu, ""),
            ("client CPU a tick", f"{self.client_cpu_us_per_tick:.2f} µs", ""),
        ]
        title = f"{self.workload} on {self.graph}"
        print_rows(console, lines, {"": "{0[0]}", " ": "{0[1]}", "  ": "{0[2]}"}, title=title, left=3)
        if self.correct:
            checked = f"{self.checks_verified:,} checks and " if self.checks_verified else ""
            console.print(
                f"[green]correct[/]: {checked}the final timelines of {self.active_users:,} users "
                f"({self.timeline_rows:,} rows) equal a computation from scratch"
            )


def prepare(settings: TwipSettings) -> Prepared:
    """Draw the graph and the operations and render every command."""
    joins = JOINS[settings.mode] if settings.join_file is None else _text(settings.join_file)
    stream = operations.make_stream(
        settings.graph, settings.users, settings.ticks, settings.seed, settings.initial_posts
    )
    return Prepared(settings, stream, operations.timed_batches(stream, settings.tweet_bytes, settings.batch), joins)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("--join-file", f"cannot read the joins: {error}") from error


def verify(prepared: Prepared, replies: Sequence[Reply], timelines: Sequence[Reply]) -> tuple[Verdict, int]:
    """Compare what came back with what must have come; also return how many checks were compared."""
    stream = prepared.stream
    posts = answers.StreamPosts(stream, prepared.settings.tweet_bytes)
    checks_verified = 0
    if prepared.settings.verify == "all":
        checks = answers.verify_checks(stream, posts, prepared.batches, replies)
        if isinstance(checks, answers.Differs):
            return checks, 0
        checks_verified = checks.scan_count
    return answers.verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines), checks_verified


def report(name: str, prepared: Prepared, run: TwipRun) -> TwipReport:
    """Verify a run and put its figures together."""
    settings, stream = prepared.settings, prepared.stream
    verdict, checks_verified = verify(prepared, run.replies, run.timelines)
    ticks = stream.tick_count
    checks = sum(batch.kinds.count(SCAN) for batch in prepared.batches)
    before, after = run.server
    server_cpu_us = rss_mib = None
    if before is not None and after is not None:
        server_cpu_us, rss_mib = (after.cpu_s - before.cpu_s) / ticks * 1e6, after.rss_bytes / 2**20
    return TwipReport(
        **outcome(prepared, run.seconds, answers.row_count(run.timelines), verdict.reason),
        workload=name,
        active_users=len(stream.active),
        seed=settings.seed,
        tweet_bytes=settings.tweet_bytes,
        mode=settings.mode if settings.join_file is None else "custom",
        batch=settings.batch,
        window=settings.window,
        load_seconds=run.load_s,
        checks=checks,
        full_checks=stream.full_check_count,
        checks_per_s=checks / run.seconds,
        subscribes=stream.count(operations.SUBSCRIBE),
        posts=stream.count(operations.POST),
        logouts=stream.count(operations.LOGOUT),
        rows=answers.row_count(run.replies),
        server_cpu_us_per_tick=server_cpu_us,
        server_rss_mib=rss_mib,
        client_cpu_us_per_tick=run.client_cpu_s / ticks * 1e6,
        checks_verified=checks_verified,
    )


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


def sent(client: AsyncClient, commands: CommandBatch, level: Level | None = None) -> asyncio.Future[Results]:
    """Send commands as one batch; reads are as fresh as ``level`` says."""
    batch = client.batch(level)
    batch.kinds += commands.kinds
    batch.arguments += commands.arguments
    return batch.send()


async def execute_all(
    client: AsyncClient,
    batches: Iterable[CommandBatch],
    window: int,
    advance: Advance = lambda _: None,
    level: Level | None = None,
) -> list[Reply]:
    """Send batches with ``window`` of them under way, and return their results."""
    replies: list[Reply] = []
    waiting: deque[asyncio.Future[Results]] = deque()

    async def take() -> None:
        reply = await waiting.popleft()
        replies.append(reply)
        advance(len(reply))

    try:
        for batch in batches:
            if len(waiting) == window:
                await take()
            waiting.append(sent(client, batch, level))
        while waiting:
            await take()
    finally:
        # After an error or Ctrl-C no code takes the batches that are still under way.
        for future in waiting:
            future.cancel()
    return replies


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
