"""What benchmarks of durable views stand on: accounts of CPU, databases, and how far tables are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
from pequod_views import DurableView, Target, open_target
from pequod_views.reading import PartStatus, status

from pequod.client import AsyncClient
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.systems.mariadb_server import started_mariadb
from pequod_bench.systems.postgres_cluster import started_cluster

#: How long tables may take until they are where they should be.
WAIT_S: Final = 300.0


def cpu_of(pid: int) -> Callable[[], float]:
    """Return what tells the CPU seconds of a process."""
    # Linux has a clock of each process, to the nanosecond; accounts count in hundredths of a second.
    clock = (~pid << 3) | 2
    try:
        time.clock_gettime(clock)
    except OSError:
        return cpu_of_all(pid)
    return lambda: time.clock_gettime(clock)


def cpu_of_all(pid: int) -> Callable[[], float]:
    """Return what tells the CPU seconds of a process and of those that it has started."""
    process = psutil.Process(pid)

    def seconds() -> float:
        total = 0.0
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                # What children that have ended took is in the account of their parent.
                total += times.user + times.system + times.children_user + times.children_system
        return total

    return seconds


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a database; yield its name and what tells its CPU seconds, which are those of the managers for SQLite."""
    if kind == "sqlite":
        yield f"sqlite:{folder}/live.db", lambda: 0.0
        return
    if kind == "mariadb":
        with started_mariadb(folder) as mariadb:
            yield mariadb.address, cpu_of_all(mariadb.pid)
        return
    with started_cluster(folder, {"synchronous_commit": "on"}) as server:
        yield server.dsn, cpu_of_all(server.pid)


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[Target]:
    """Yield a database that views live in."""
    target = open_target(database)
    try:
        yield target
    finally:
        await target.close()


def are_shared(parts: list[PartStatus], manager_count: int) -> bool:
    """Return whether all parts are followed, by managers that have as many as each other."""
    counts = [sum(part.owner == owner for part in parts) for owner in {part.owner for part in parts}]
    is_even = len(counts) == min(manager_count, len(parts)) and max(counts) - min(counts) <= 1
    return is_even and all(part.state == "follows" for part in parts)


class Level:
    """Waits until all tables are as far as the server."""

    def __init__(self, target: Target, client: AsyncClient) -> None:
        self._target = target
        self._client = client
        #: All that the managers have written.
        self.changes = 0

    async def reached(self) -> None:
        """Wait until the tables have what the client has written."""
        end_s = time.monotonic() + WAIT_S
        while True:
            parts = await status(self._target)
            if all(part.revision >= self._client.revision for part in parts):
                self.changes = sum(part.changes for part in parts)
                return
            if time.monotonic() > end_s:
                raise WrongAnswerError(f"the tables are not as far as the server after {WAIT_S:.0f} s")
            await asyncio.sleep(0.05)


async def read_all(client: AsyncClient, views: tuple[DurableView, ...]) -> None:
    """Read all rows of views once."""
    for view in views:
        await client.scan(view.first, view.last)


async def compare(target: Target, client: AsyncClient, views: tuple[DurableView, ...]) -> None:
    """Compare each table with a scan."""
    for view in views:
        rows = [(key, value.decode()) for key, value in await client.scan(view.first, view.last)]
        async with target.transaction() as transaction:
            found = await transaction.fetch(
                f"SELECT pequod_key, value FROM {view.table} ORDER BY pequod_key"  # noqa: S608 - a name of our own
            )
        if list(map(tuple, found)) != rows:
            raise WrongAnswerError(
                f"the table {view.table} has {len(found)} rows that are not the {len(rows)} of a scan"
            )
