"""What measures of durable views stand on: databases, managers, and how far tables are."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from pequod_views import DurableView, Target, open_target, parse_views
from pequod_views.reading import PartStatus, status

from pequod.client import AsyncClient
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.systems.mariadb_server import started_mariadb
from pequod_bench.systems.postgres_cluster import started_cluster
from pequod_bench.systems.server import ServerProcess, tree_usage

#: How long tables may take until they are where they should be.
WAIT_S: Final = 300.0


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a database; yield its name and what tells its CPU seconds, which are those of the managers for SQLite."""
    if kind == "sqlite":
        yield f"sqlite:{folder}/live.db", lambda: 0.0
        return
    if kind == "mariadb":
        with started_mariadb(folder) as mariadb:
            yield mariadb.address, lambda: tree_usage(mariadb.pid).cpu_s
        return
    with started_cluster(folder, {"synchronous_commit": "on"}) as server:
        yield server.dsn, lambda: tree_usage(server.pid).cpu_s


def document(
    folder: Path, server: str, database: str, tables: Iterable[tuple[str, str]]
) -> tuple[Path, tuple[DurableView, ...]]:
    """Write a file of views, by the names of their tables and the patterns of their keys; return it and the views."""
    shown = (f'[[view]]\nname = "{name}"\nkeys = "{keys}"\nvalue = "value"\n' for name, keys in tables)
    file = folder / "views.toml"
    file.write_text(f'server = "{server}"\ndatabase = "{database}"\n{"".join(shown)}')
    return file, parse_views(file.read_text()).views


@contextmanager
def managers(file: Path, count: int, *flags: str) -> Iterator[list[ServerProcess]]:
    """Run managers of the views of a file."""
    command = [sys.executable, "-m", "pequod.cli", "views", "run", str(file), *flags, "--name"]
    with ExitStack() as ending:
        processes = [ServerProcess([*command, f"m{number}"]) for number in range(count)]
        for process in processes:
            ending.callback(process.end)
        yield processes


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
