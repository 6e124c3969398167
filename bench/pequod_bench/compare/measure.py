"""One timed run on a fresh server: load, time, look at what it cost, compare what is there at the end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pequod_bench.commands import timeline_scans
from pequod_bench.compare.server import tree_usage
from pequod_bench.compare.system import Client, Server, System, Workload
from pequod_bench.recompute import Posts
from pequod_bench.twip import SCAN_BATCH, Stopwatch, resting_collector
from pequod_bench.verify import Differs, Reply, Same, Verdict, verify_timelines

#: Where a server's files go: memory, if there is a file system in it with room, as in the paper (§5.2).
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a directory of our own is made in it
#: Containers often have 64 MiB there, which is less than an empty PostgreSQL.
_MEMORY_BYTES_MIN: Final = 4 << 30


@dataclass(frozen=True, slots=True)
class Outcome:
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
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415 -- optional

        factory = uvloop.new_event_loop
    return asyncio.Runner(loop_factory=factory)


def run_twip(system: System, workload: Workload, loop: asyncio.Runner) -> Outcome:
    """Run Twip's operations on a fresh server of a system."""
    with started(system) as server:
        return loop.run(_run_twip(system, server, workload))


@contextmanager
def started(system: System) -> Iterator[Server]:
    """Start a server in a directory of its own."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES_MIN
    folder = _MEMORY if has_room else None
    with (
        TemporaryDirectory(prefix="pequod-compare-", dir=folder, ignore_cleanup_errors=True) as directory,
        system.started(Path(directory)) as server,
    ):
        yield server


async def _run_twip(system: System, server: Server, workload: Workload) -> Outcome:
    stream = workload.stream
    async with system.session(server, workload) as session:

        async def verify() -> Verdict:
            users = stream.active.tolist()
            timelines: list[Reply] = [
                await session.timelines(users[i : i + SCAN_BATCH]) for i in range(0, len(users), SCAN_BATCH)
            ]
            posts = Posts(stream, workload.tweet_bytes)
            return verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines)

        return await timed(server, session, verify)


async def timed(server: Server, client: Client, verify: Callable[[], Awaitable[Verdict]]) -> Outcome:
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
    return Outcome(
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
