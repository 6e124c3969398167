"""One timed run on a fresh server: warm up, load, time, look at what it cost, compare what is there at the end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from pequod_bench.process import loop_factory
from pequod_bench.systems.machine import can_pin, on_first_core, pinned
from pequod_bench.systems.server import tree_usage
from pequod_bench.systems.system import Server, System, SystemClient, SystemSession, SystemWorkload
from pequod_bench.twip import SCAN_BATCH, Stopwatch, resting_collector
from pequod_bench.workloads.commands import timeline_scans
from pequod_bench.workloads.recompute import StreamPosts
from pequod_bench.workloads.stream import make_stream
from pequod_bench.workloads.verify import Differs, Reply, Same, Verdict, verify_timelines

Result = TypeVar("Result")

#: Where a server's files go: memory, if there is a file system in it with room, as in the paper (§5.2).
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a directory of our own is made in it
#: A run that takes longer than this hangs.
RUN_S_MAX: Final = 1800.0
#: Containers often have 64 MiB there, which is less than an empty PostgreSQL.
_MEMORY_BYTES_MIN: Final = 4 << 30


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


def client_loop() -> asyncio.Runner:
    """Return what runs the clients: one event loop for all of them, since gRPC holds on to the first that it meets.

    It is uvloop's where that is installed, which helps every client.
    """
    return asyncio.Runner(loop_factory=loop_factory())


@cache
def warm_up() -> SystemWorkload:
    """Return a small Twip that every fresh server does first.

    It compiles, imports, plans and connects what a server that has been up for a while has long behind it.
    """
    return SystemWorkload(make_stream("synthetic", user_count=50, tick_count=3_000, seed=0), tweet_bytes=140)


def run_twip(system: System, workload: SystemWorkload, loop: asyncio.Runner, *, pin: bool = False) -> RunOutcome:
    """Run Twip's operations on a fresh server of a system.

    Raises:
        TimeoutError: It takes longer than `RUN_S_MAX`.
    """
    with started(system, pin=pin) as server:
        return loop.run(within(RUN_S_MAX, _run_twip(system, server, workload)))


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """Wait for something, but not for ever."""
    async with asyncio.timeout(seconds):
        return await work


@contextmanager
def started(system: System, *, pin: bool = False) -> Iterator[Server]:
    """Start a server in its own directory; ``pin`` keeps it and this process on different cores, where that works."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN
    folder = _MEMORY if has_room else None
    with ExitStack() as stack:
        directory = stack.enter_context(
            TemporaryDirectory(prefix="pequod-compare-", dir=folder, ignore_cleanup_errors=True)
        )
        if not (pin and system.is_pinnable and can_pin()):
            yield stack.enter_context(system.started(Path(directory)))
            return
        with pinned():
            server = stack.enter_context(system.started(Path(directory)))
        with on_first_core():
            yield server


async def _run_twip(system: System, server: Server, workload: SystemWorkload) -> RunOutcome:
    async with system.session(server, warm_up()) as session:
        await session.load()
        await session.run()
        await session.clear()
    async with system.session(server, workload) as session:

        async def verify() -> Verdict:
            await asyncio.sleep(system.stale_s_max)
            return await verified(session, workload)

        return await timed(server, session, verify)


async def verified(session: SystemSession, workload: SystemWorkload) -> Verdict:
    """Compare every active user's timeline with a computation from scratch."""
    stream = workload.stream
    users = stream.active.tolist()
    timelines: list[Reply] = [
        await session.timelines(users[i : i + SCAN_BATCH]) for i in range(0, len(users), SCAN_BATCH)
    ]
    return verify_timelines(
        stream, StreamPosts(stream, workload.tweet_bytes), timeline_scans(stream, SCAN_BATCH), timelines
    )


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
        final_rows=verdict.row_count if isinstance(verdict, Same) else 0,
        difference=verdict.reason if isinstance(verdict, Differs) else "",
    )
