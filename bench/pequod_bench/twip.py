"""A run of Twip, whatever carries out the commands: prepare, load, time, verify, report."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from pequod.commands.kinds import SCAN
from pequod_bench.process import Loop, Usage
from pequod_bench.report.twip import TwipReport
from pequod_bench.workloads.commands import CommandBatch, timed_batches, timeline_scans
from pequod_bench.workloads.keys import Mode
from pequod_bench.workloads.recompute import StreamPosts
from pequod_bench.workloads.stream import LOGOUT, POST, SUBSCRIBE, TwipStream, make_stream
from pequod_bench.workloads.verify import Differs, Reply, Same, Verdict, row_count, verify_checks, verify_timelines

#: Puts a message while the graph is loaded.
LOAD_BATCH: Final = 512
#: Whole timelines a message when the final ones are read: far fewer, since these are long.
SCAN_BATCH: Final = 16


@dataclass(frozen=True, slots=True)
class TwipSettings:
    """What run to make; the defaults are small enough to watch."""

    #: ``synthetic``, ``power-law`` or the path of an edge file, which then tells the number of users.
    graph: str = "synthetic"
    users: int = 2_000
    ticks: int = 200_000
    seed: int = 1
    tweet_bytes: int = 140
    #: Posts that are there before the clock starts.
    initial_posts: int = 0
    mode: Mode = "push"
    #: Declarations to install in place of the mode's.
    join_text: str | None = None
    #: Commands a message, and messages under way at once.
    batch: int = 256
    window: int = 4
    #: Compare every check of the run, or the final timelines alone.
    verify: Literal["all", "final"] = "all"
    #: Event loops of this process, and of the server if one is started.
    client_loop: Loop = "uvloop"
    server_loop: Loop = "uvloop"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is made before a store is touched."""

    settings: TwipSettings
    stream: TwipStream
    batches: list[CommandBatch]

    @property
    def load_count(self) -> int:
        """How many puts load what is there before the start."""
        return self.stream.graph.edge_count + self.stream.first_tick

    @property
    def command_count(self) -> int:
        """How many commands are timed; logouts are none."""
        return sum(len(batch.kinds) for batch in self.batches)


@dataclass(frozen=True, slots=True)
class TwipRun:
    """What a store did with what was prepared."""

    load_s: float
    seconds: float
    client_cpu_s: float
    #: The server before and after the timed part, if it can be looked at.
    server: tuple[Usage, Usage] | None
    #: One for each prepared batch.
    replies: list[Reply]
    #: The final timelines, asked for with `timeline_scans` in batches of ``SCAN_BATCH``.
    timelines: list[Reply]


class Stopwatch:
    """Wall and CPU time of this process since it was started."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        """Return the wall time so far."""
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads so far."""
        return time.process_time() - self._cpu


@contextmanager
def resting_collector() -> Iterator[None]:
    """Hold the cyclic garbage collector: the run keeps every reply, and it would walk over them again and again."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def prepare(settings: TwipSettings) -> Prepared:
    """Draw the graph and the operations and render every command."""
    stream = make_stream(settings.graph, settings.users, settings.ticks, settings.seed, settings.initial_posts)
    batches = timed_batches(stream, settings.tweet_bytes, settings.batch)
    return Prepared(settings, stream, batches)


def verify(prepared: Prepared, replies: Sequence[Reply], timelines: Sequence[Reply]) -> tuple[Verdict, int]:
    """Compare what came back with what must have come; also return how many checks were compared."""
    stream = prepared.stream
    posts = StreamPosts(stream, prepared.settings.tweet_bytes)
    checks_verified = 0
    if prepared.settings.verify == "all":
        checks = verify_checks(stream, posts, prepared.batches, replies)
        if isinstance(checks, Differs):
            return checks, 0
        checks_verified = checks.scan_count
    return verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines), checks_verified


def report(name: str, prepared: Prepared, run: TwipRun) -> TwipReport:
    """Verify a run and put its figures together."""
    settings, stream = prepared.settings, prepared.stream
    verdict, checks_verified = verify(prepared, run.replies, run.timelines)
    ticks = stream.tick_count
    checks = sum(batch.kinds.count(SCAN) for batch in prepared.batches)
    server_cpu_us = rss_mib = None
    if run.server is not None:
        before, after = run.server
        server_cpu_us = (after.cpu_s - before.cpu_s) / ticks * 1e6
        rss_mib = after.rss_bytes / 2**20
    return TwipReport(
        workload=name,
        graph=stream.graph.name,
        users=stream.graph.user_count,
        active_users=len(stream.active),
        edges=stream.graph.edge_count,
        seed=settings.seed,
        tweet_bytes=settings.tweet_bytes,
        mode=settings.mode if settings.join_text is None else "custom",
        batch=settings.batch,
        window=settings.window,
        load_seconds=run.load_s,
        ticks=ticks,
        seconds=run.seconds,
        ticks_per_s=ticks / run.seconds,
        checks=checks,
        full_checks=stream.full_check_count,
        checks_per_s=checks / run.seconds,
        subscribes=stream.count(SUBSCRIBE),
        posts=stream.count(POST),
        logouts=stream.count(LOGOUT),
        rows=row_count(run.replies),
        server_cpu_us_per_tick=server_cpu_us,
        server_rss_mib=rss_mib,
        client_cpu_us_per_tick=run.client_cpu_s / ticks * 1e6,
        timeline_rows=row_count(run.timelines),
        checks_verified=checks_verified,
        correct=isinstance(verdict, Same),
        difference=verdict.reason if isinstance(verdict, Differs) else "",
    )
