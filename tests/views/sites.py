"""Databases for views, and the server's rows as a table should have them."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pymysql
from pequod_views import DurableView, Manager, open_target
from pequod_views.definition import names_of
from pequod_views.errors import UnfitError
from pequod_views.followed import FollowerSettings
from pequod_views.install import install
from pequod_views.targets import mariadb as mariadb_target
from pequod_views.targets.kafka_mirror import LedgerMirror
from pequod_views.targets.kafka_values import decoded, stored
from pequod_views.targets.sqlite import _cell
from pequod_views.targets.target import quoted
from pymysql.constants import CLIENT

from pequod import AsyncClient
from tests.backing.conftest import Postgres
from tests.views.kafka_broker import Kafka
from tests.views.kafka_reading import committed, delete_topics, fenced
from tests.views.mariadb import Mariadb

SETTINGS = FollowerSettings(lease_s=2.0, progress_s=0.05)
WAIT_S = 30.0


class Site(ABC):
    """A database that views live in, read by a connection of the test's own."""

    database: str
    #: Of the tables beside the views.
    prefix: str
    #: The types of texts and of keys.
    text_type: str
    key_type: str
    #: A function of its clock, by which a query of docs/views.md is known.
    clock: str
    #: Whether an index may be of some rows.
    has_partial_indexes = True

    @abstractmethod
    async def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement."""

    @abstractmethod
    def cell(self, cell: Any) -> Any:
        """Return a cell as the database gives it back."""

    async def drop_index(self, name: str, table: str) -> None:
        """Drop an index of a table."""
        await self.fetch(f"DROP INDEX {name}")

    async def rows(self, view: DurableView) -> list[tuple[Any, ...]]:
        """Return the rows of a view's table by key."""
        names = ", ".join(quoted(name) for name in names_of(view.columns))
        return await self.fetch(f"SELECT {names} FROM {quoted(view.table)} ORDER BY pequod_key")


class SqliteSite(Site):
    """A SQLite file."""

    prefix = "pequod_views_"
    text_type, key_type, clock = "text", "BLOB", "julianday"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = f"sqlite:{path}"

    async def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        # In a thread: who holds the lock on the file may need this event loop to go on.
        return await asyncio.to_thread(self._fetch, statement)

    def _fetch(self, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def cell(self, cell: Any) -> Any:
        return _cell(cell)


class ServerSite(Site):
    """A database of a server of the tests' own, which can die."""

    @abstractmethod
    async def clear(self) -> None:
        """Begin with an empty database."""

    @abstractmethod
    def stop(self) -> None:
        """End the server as a crash does."""

    @abstractmethod
    def start(self) -> None:
        """Start it again."""

    @abstractmethod
    async def cut(self) -> None:
        """Break the connections of managers off."""


class PostgresSite(ServerSite):
    """A database in a PostgreSQL of the tests' own."""

    prefix = "pequod_views."
    text_type, key_type, clock = "text", "bytea", "clock_timestamp"

    def __init__(self, cluster: Postgres) -> None:
        self.cluster = cluster
        self.database = cluster.dsn("postgres")

    async def clear(self) -> None:
        await self.fetch("DROP SCHEMA IF EXISTS pequod_views CASCADE")
        await self.fetch("DROP SCHEMA public CASCADE")
        await self.fetch("CREATE SCHEMA public")

    def stop(self) -> None:
        self.cluster.stop(kill=True)

    def start(self) -> None:
        self.cluster.start()

    async def cut(self) -> None:
        await self.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pequod views'"
        )

    async def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.database)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    def cell(self, cell: Any) -> Any:
        return cell


class MariadbSite(ServerSite):
    """A database in a MariaDB of the tests' own."""

    prefix = "pequod_views_"
    text_type, key_type, clock = "longtext", "varbinary(2048)", "sysdate"
    has_partial_indexes = False

    def __init__(self, server: Mariadb) -> None:
        self.server = server
        self.database = server.database("live")

    async def clear(self) -> None:
        await asyncio.to_thread(self._fetch, "DROP DATABASE IF EXISTS live; CREATE DATABASE live", None)

    def stop(self) -> None:
        self.server.stop(kill=True)

    def start(self) -> None:
        self.server.start()

    async def cut(self) -> None:
        own = "SELECT id FROM information_schema.processlist WHERE db = 'live' AND id <> connection_id()"
        for (number,) in await self.fetch(own):
            # It may have ended meanwhile.
            with suppress(pymysql.MySQLError):
                await self.fetch(f"KILL {number}")

    async def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        # In a thread: who holds a lock may need this event loop to go on.
        return await asyncio.to_thread(self._fetch, statement, "live")

    def _fetch(self, statement: str, database: str | None) -> list[tuple[Any, ...]]:
        raw = pymysql.Connection(
            user="root",
            database=database,
            autocommit=True,
            charset="utf8mb4",
            client_flag=CLIENT.MULTI_STATEMENTS,
            init_command="SET sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES'",
            read_timeout=60,
            defer_connect=True,
        )
        # The driver's own socket stays open where nobody listens.
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(self.server.socket))
            raw.connect(own)
            with raw, raw.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())

    async def drop_index(self, name: str, table: str) -> None:
        await self.fetch(f"DROP INDEX {name} ON {table}")

    def cell(self, cell: Any) -> Any:
        return mariadb_target._cell(cell)


class KafkaSite(ServerSite):
    """Topics in a Kafka of the tests' own, read as any consumer of committed records does, and then by SQLite."""

    prefix = "pequod_views_"
    clock = "kafka"

    def __init__(self, broker: Kafka) -> None:
        self.broker = broker
        self.database = f"kafka://{broker.address}"

    async def clear(self) -> None:
        await delete_topics(self.broker.address)

    def stop(self) -> None:
        self.broker.stop()

    def start(self) -> None:
        self.broker.start()

    async def cut(self) -> None:
        managers = await self.fetch("SELECT name FROM pequod_views_managers")
        await fenced(self.broker.address, [f"pequod_views/{name}" for (name,) in managers])

    async def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        records = await committed(self.broker.address)
        with closing(sqlite3.connect(":memory:")) as database:
            mirror = LedgerMirror(time.time)
            mirror.apply((key, value) for key, value in records.pop("pequod_views", {}).items())
            mirror.connection.backup(database)
            for topic, rows in records.items():
                _fill(database, topic, rows)
            database.create_function("pequod_changed", -1, lambda *_: None)
            return database.execute(statement).fetchall()

    async def rows(self, view: DurableView) -> list[tuple[Any, ...]]:
        found = (await committed(self.broker.address)).get(view.table, {})
        there = [(key, value) for key, value in sorted(found.items()) if value is not None]
        # The key as all cells are told of by `cell`.
        return [(stored(key), *decoded(view, key, value)[1:]) for key, value in there]

    def cell(self, cell: Any) -> Any:
        return stored(cell)


def _fill(database: sqlite3.Connection, topic: str, rows: dict[bytes, bytes | None]) -> None:
    """Make a table of a topic's JSON."""
    cells = {key: json.loads(value) for key, value in rows.items() if value is not None}
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    table = f'"{topic}"'
    database.execute(f"CREATE TABLE {table} ({', '.join(map(quoted, ['pequod_key', *names]))})")
    for key, row in cells.items():
        values = [json.dumps(row[name]) if isinstance(row[name], dict | list) else row[name] for name in names]
        database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (1 + len(names)))})", [key, *values])


async def expected(site: Site, client: AsyncClient, view: DurableView) -> list[tuple[Any, ...]]:
    """Return the rows that the table should have, from a scan."""
    found = []
    for key, value in await client.scan(view.first, view.last):
        try:
            row = view.row(key, value)
        except UnfitError:
            continue
        if row is not None:
            found.append(tuple(site.cell(cell) for cell in row))
    return found


async def equal(site: Site, client: AsyncClient, *views: DurableView, wait_s: float = WAIT_S) -> None:
    """Wait until tables are equal to scans, while nothing is written."""
    end_s = time.monotonic() + wait_s
    for view in views:
        wanted = await expected(site, client, view)
        while (found := await site.rows(view)) != wanted:
            assert time.monotonic() < end_s, f"{view.name}: {found} is not {wanted}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def managing(
    site: Site,
    client: AsyncClient,
    views: Sequence[DurableView],
    settings: FollowerSettings = SETTINGS,
    name: str = "m",
) -> AsyncIterator[Manager]:
    """Run a manager in this loop; it leaves in order."""
    target = open_target(site.database)
    manager = Manager(client, target, views, settings, name=name)
    task = asyncio.create_task(manager.run())
    try:
        yield manager
        assert not task.done()
    finally:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        await target.close()
    assert isinstance(outcome, asyncio.CancelledError), outcome


async def installed(site: Site, client: AsyncClient, *views: DurableView, adopt: bool = False) -> list[str]:
    """Install views.

    Args:
        adopt: Have them show this server, though they were installed with another one.
    """
    target = open_target(site.database)
    try:
        return await install(target, client, views, adopt=adopt)
    finally:
        await target.close()


async def until(holds: Any, wait_s: float = WAIT_S) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + wait_s
    while not holds():
        assert time.monotonic() < end_s, "it does not come true"
        await asyncio.sleep(0.01)


async def reached(site: Site, view: DurableView, revision: int) -> None:
    """Wait until the position of a view of one part is at a revision."""
    end_s = time.monotonic() + WAIT_S
    while True:
        ((present,),) = await site.fetch(f"SELECT revision FROM {site.prefix}parts WHERE view = '{view.name}'")
        if present >= revision:
            return
        assert time.monotonic() < end_s, f"it is at {present}, not {revision}"
        await asyncio.sleep(0.01)


async def check_log(site: Site, view: DurableView) -> int:
    """Judge the log of applied revisions: each step begins where the one before ended; return how many there are."""
    # In one statement, since managers may go on.
    steps = await site.fetch(
        "SELECT first, from_server, from_revision, server_id, revision, epoch, at, replaced"
        f" FROM {site.prefix}log WHERE view = '{view.name}'"
        " UNION ALL SELECT first, server_id, revision, '', 0, epoch, 1e18, 2"
        f" FROM {site.prefix}parts WHERE view = '{view.name}' ORDER BY 1, 6, 7"
    )
    last: dict[bytes, tuple[str, int]] = {}
    parts = 0
    for first, from_server, from_revision, server_id, revision, _epoch, _at, kind in steps:
        assert (from_server, from_revision) == last.get(first, ("", 0)), f"a gap, or applied twice: {steps}"
        assert kind or (from_server == server_id and revision >= from_revision), f"it goes back: {steps}"
        last[first] = server_id, revision
        parts += kind == 2
    return len(steps) - parts
