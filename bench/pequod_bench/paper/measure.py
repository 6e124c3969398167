"""Timed runs on fresh servers: warm up, load, time, look at what it cost, compare what is there at the end.

Runs of whatever is compared are interleaved, and one that fails does not end the others:

    round 1   A B C D       what slows the machine for a while slows all of them
    round 2   A B   D       C failed: it is left out from then on, and the report says why
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from pequod_bench.collector import resting_collector
from pequod_bench.report.progress import QUIET, Advance, ProgressBars
from pequod_bench.systems.server import Stopwatch, loop_factory, tree_usage
from pequod_bench.systems.system import Server, System, SystemClient, SystemSession, SystemWorkload
from pequod_bench.twip.prepared import SCAN_BATCH
from pequod_bench.workloads.stream import make_stream, timeline_scans
from pequod_bench.workloads.verify import Reply, StreamPosts, Verdict, verify_timelines

Found = TypeVar("Found")
Subject = TypeVar("Subject")

#: Where a server's files go: memory, if there is a file system in it with room, as in the paper (§5.2).
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a directory of our own is made in it
#: Containers often have 64 MiB there, which is less than an empty PostgreSQL.
_MEMORY_BYTES_MIN: Final = 4 << 30
#: A run that takes longer than this hangs.
RUN_S_MAX: Final = 1800.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What one run cost; all but the loading covers the timed part alone."""

    load_seconds: float
    seconds: float
    #: CPU of all the server's processes, and of the client's one.
    server_cpu_seconds: float
    client_cpu_seconds: float
    #: Memory of all the server's processes at the end.
    server_mib: float
    commands: int
    messages: int
    #: Rows that the reads returned; where clients keep the timelines, those under way are missing.
    rows: int
    #: Rows that were compared at the end.
    final_rows: int
    #: The first difference of what is there at the end from a computation from scratch; empty if there is none.
    difference: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that was to be measured, and why it was not."""

    section: str
    title: str
    reason: str


class Trials:
    """Makes runs, and notes which failed.

    Args:
        loop: Runs the clients: one event loop for all of them, since gRPC holds on to the first that it meets.
    """

    def __init__(self, loop: asyncio.Runner, bars: ProgressBars) -> None:
        self._loop = loop
        self.bars = bars
        self.failures: list[Failure] = []

    def on_server(self, system: System, work: Callable[[Server], Awaitable[Found]]) -> Found:
        """Do something on a fresh server of a system, whose files are in a directory of its own.

        Raises:
            TimeoutError: It takes longer than `RUN_S_MAX`.
        """
        has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN
        folder = _MEMORY if has_room else None
        with (
            TemporaryDirectory(prefix="pequod-compare-", dir=folder, ignore_cleanup_errors=True) as directory,
            system.started(Path(directory)) as server,
        ):
            return self.run(work(server))

    def run(self, work: Awaitable[Found]) -> Found:
        """Do something in the clients' event loop, but not for ever."""

        async def within() -> Found:
            async with asyncio.timeout(RUN_S_MAX):
                return await work

        return self._loop.run(within())

    def attempt(self, section: str, title: str, work: Callable[[], Found]) -> list[Found]:
        """Return what was found, in a list; nothing if it failed."""
        try:
            return [work()]
        except Exception as error:
            text = str(error).strip() or "it says no more"
            self.failures.append(Failure(section, title, f"{type(error).__name__}: {text}"))
            return []

    def interleaved(
        self,
        section: str,
        subjects: Mapping[str, Subject],
        repetitions: int,
        run_one: Callable[[Subject], Found],
        advance: Advance,
    ) -> dict[str, list[Found]]:
        """Run all subjects one after the other, then all again; return the results of those that did not fail."""
        found: dict[str, list[Found]] = {title: [] for title in subjects}
        for _ in range(repetitions):
            for title in list(found):
                result = self.attempt(section, title, partial(run_one, subjects[title]))
                found[title] += result
                if not result:
                    del found[title]
                advance(1)
        return found


@contextmanager
def trying(bars: ProgressBars = QUIET) -> Iterator[Trials]:
    """Yield what makes runs, in an event loop of uvloop where that is installed, which helps every client."""
    with asyncio.Runner(loop_factory=loop_factory()) as loop:
        yield Trials(loop, bars)


@cache
def _warm_up() -> SystemWorkload:
    """Return a small Twip that every fresh server does first.

    It compiles, imports, plans and connects what a server that has been up for a while has long behind it.
    """
    return SystemWorkload(make_stream("synthetic", user_count=50, tick_count=3_000, seed=0))


def run_twip(system: System, workload: SystemWorkload, trials: Trials) -> RunOutcome:
    """Run Twip's operations on a fresh server of a system."""

    async def run(server: Server) -> RunOutcome:
        async with system.session(server, _warm_up()) as session:
            await session.load()
            await session.run()
            await session.clear()
        async with system.session(server, workload) as session:
            return await timed(server, session, lambda: verified(session, workload))

    return trials.on_server(system, run)


async def verified(session: SystemSession, workload: SystemWorkload) -> Verdict:
    """Compare every active user's timeline with a computation from scratch."""
    stream = workload.stream
    users = stream.active.tolist()
    timelines: list[Reply] = [
        await session.timelines(users[i : i + SCAN_BATCH]) for i in range(0, len(users), SCAN_BATCH)
    ]
    posts = StreamPosts(stream, workload.tweet_bytes)
    return verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines)


async def timed(server: Server, client: SystemClient, verify: Callable[[], Awaitable[Verdict]]) -> RunOutcome:
    """Load, run and verify; only the run is timed."""
    loading = Stopwatch()
    await client.load()
    load_s = loading.seconds()
    with resting_collector():
        before = tree_usage(server.pid)
        watch = Stopwatch()
        work = await client.run()
        seconds, client_cpu_s = watch.seconds(), watch.cpu_seconds()
        after = tree_usage(server.pid)
    verdict = await verify()
    return RunOutcome(
        load_seconds=load_s,
        seconds=seconds,
        server_cpu_seconds=after.cpu_s - before.cpu_s,
        client_cpu_seconds=client_cpu_s,
        server_mib=after.rss_bytes / 2**20,
        commands=work.command_count,
        messages=work.message_count,
        rows=work.row_count,
        final_rows=verdict.row_count,
        difference=verdict.reason,
    )
