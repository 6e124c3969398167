"""Databases of Twip that can be written to, looked at and tormented."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final, Protocol

import asyncpg
from pequod_server.backing import SqliteStore, parse_mappings
from pequod_server.backing.postgres.schema import Mode
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.chaos.proxy import Proxy
from tests.backing.chaos.standby import Standby
from tests.backing.conftest import Connection, Postgres, clear

MAPPING: Final = """
[[mapping]]
keys = "p|<poster>|<time:10>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
where = "NOT hidden"

[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
"""
_SCHEMA: Final = (
    "CREATE TABLE posts (poster TEXT NOT NULL, at BIGINT NOT NULL, body TEXT, hidden BOOLEAN NOT NULL DEFAULT false, "
    "PRIMARY KEY (poster, at));"
    'CREATE TABLE subscriptions ("user" TEXT, poster TEXT, PRIMARY KEY ("user", poster));'
)
_POSTS: Final = "SELECT poster, at, body FROM posts WHERE NOT hidden"
_SUBSCRIPTIONS: Final = 'SELECT "user", poster FROM subscriptions'

Statement = tuple[str, tuple[object, ...]]
Fault = Callable[[], Awaitable[None]]


class SiteAwayError(Exception):
    """The database did not take a transaction, or broke in the middle of one."""


class Site(Protocol):
    """A database with the tables of Twip."""

    #: Flags of the server.
    flags: Sequence[str]
    #: Whether commits may be gone afterwards, as those are that a standby has not got when its primary dies.
    loses_commits: bool

    async def reset(self) -> None:
        """Make the tables anew, empty, with what the feed needs."""
        ...

    async def run(self, statements: Sequence[Statement]) -> None:
        """Carry out a transaction.

        Raises:
            SiteAwayError: It is not known whether it was carried out.
        """
        ...

    async def rows(self) -> dict[bytes, bytes]:
        """Return all keys that the database makes."""
        ...

    async def position(self) -> int:
        """Return the position that a feed has passed once it has told everything."""
        ...

    def faults(self, draw: random.Random, *, is_written_through: bool) -> dict[str, Fault]:
        """Return what can happen to it, by name; each is over when it returns."""
        ...


def keys(posts: Sequence[Sequence[object]], subscriptions: Sequence[Sequence[object]]) -> dict[bytes, bytes]:
    """Return the keys of rows, without the code that is to be tested."""
    found = {f"p|{poster}|{time:010}".encode(): str(body).encode() for poster, time, body in posts}
    return found | {f"s|{user}|{poster}".encode(): b"" for user, poster in subscriptions}


class SqliteSite:
    """A file."""

    loses_commits = False

    def __init__(self, folder: Path, mapping: Path) -> None:
        self._path = folder / "twip.db"
        self.flags: Sequence[str] = ("--backing", f"sqlite:{self._path}", "--backing-mapping", str(mapping))
        #: Held by who writes, and by who replaces the file.
        self._lock = asyncio.Lock()

    async def reset(self) -> None:
        for path in self._path.parent.glob("twip.db*"):
            path.unlink()
        with closing(sqlite3.connect(self._path)) as connection:
            connection.executescript("PRAGMA journal_mode = WAL;" + _SCHEMA)
        store = SqliteStore(self._path, parse_mappings(MAPPING))
        await store.install()
        await store.close()

    async def run(self, statements: Sequence[Statement]) -> None:
        async with self._lock:
            await asyncio.to_thread(self._run, statements)

    def _run(self, statements: Sequence[Statement]) -> None:
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for sql, arguments in statements:
                    connection.execute(sql.replace("TRUNCATE", "DELETE FROM").replace("$", "?"), arguments)
                connection.execute("COMMIT")
        except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
            raise SiteAwayError(str(error)) from error

    async def rows(self) -> dict[bytes, bytes]:
        with closing(sqlite3.connect(self._path)) as connection:
            return keys(connection.execute(_POSTS).fetchall(), connection.execute(_SUBSCRIPTIONS).fetchall())

    async def position(self) -> int:
        with closing(sqlite3.connect(self._path)) as connection:
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'pequod_changes'").fetchone()
            return int(row[0]) if row else 0

    def faults(self, draw: random.Random, *, is_written_through: bool) -> dict[str, Fault]:
        async def locked() -> None:
            async with self._lock:
                with closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as connection:
                    connection.execute("BEGIN EXCLUSIVE")
                    await asyncio.sleep(draw.uniform(0.05, 0.5))
                    connection.execute("ROLLBACK")

        async def away() -> None:
            elsewhere = self._path.with_name("away.db")
            async with self._lock:
                self._path.rename(elsewhere)
                await asyncio.sleep(draw.uniform(0.05, 0.5))
                elsewhere.rename(self._path)

        async def replaced() -> None:
            async with self._lock:
                copy = self._path.with_name("copy.db")
                with (
                    closing(sqlite3.connect(self._path, timeout=10)) as old,
                    closing(sqlite3.connect(copy)) as new,
                ):
                    old.backup(new)
                    new.execute("DELETE FROM posts WHERE at % 2 = 0 AND poster <> 'counter'")
                    new.commit()
                    new.execute("PRAGMA journal_mode = WAL")
                for name in ("twip.db-wal", "twip.db-shm"):
                    self._path.with_name(name).unlink(missing_ok=True)
                copy.replace(self._path)

        faults: dict[str, Fault] = {"locked": locked, "away": away}
        # Who replaces a file under a server that writes to it loses what it writes.
        return faults if is_written_through else {**faults, "replaced": replaced}


class PostgresSite:
    """A database of a cluster, reached through a proxy by the server and directly by us."""

    loses_commits = False

    def __init__(self, postgres: Postgres, proxy: Proxy, mapping: Path, feed: Mode) -> None:
        self._postgres = postgres
        self._proxy = proxy
        self._feed = feed
        self._dsn = postgres.dsn("postgres")
        through = f"postgresql://postgres@/postgres?host={proxy.directory}"
        self.flags: Sequence[str] = ("--backing", through, "--backing-mapping", str(mapping), "--backing-feed", feed)
        if feed == "slot":
            # A large commit is more than this.
            self.flags = (*self.flags, "--backing-bytes-max", "64KiB")

    async def reset(self) -> None:
        await clear(self._dsn)
        async with self._connected() as connection:
            await connection.execute(_SCHEMA)
            await connection.execute("CREATE TABLE unmapped (n integer)")
        store = PostgresStore(self._dsn, parse_mappings(MAPPING), mode=self._feed)
        await store.install()
        await store.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        connection = await asyncpg.connect(self._dsn, timeout=60)
        try:
            yield connection
        finally:
            connection.terminate()

    async def run(self, statements: Sequence[Statement]) -> None:
        try:
            async with self._connected() as connection, connection.transaction():
                for sql, arguments in statements:
                    await connection.execute(sql, *arguments)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise SiteAwayError(str(error)) from error

    async def rows(self) -> dict[bytes, bytes]:
        async with self._connected() as connection:
            return keys(*[[(*row,) for row in await connection.fetch(sql)] for sql in (_POSTS, _SUBSCRIPTIONS)])

    async def position(self) -> int:
        async with self._connected() as connection:
            return int(await connection.fetchval("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"))

    def faults(self, draw: random.Random, *, is_written_through: bool) -> dict[str, Fault]:
        async def cut() -> None:
            self._proxy.cut()

        async def held() -> None:
            await self._proxy.hold(draw.uniform(0.1, 1.5))

        async def shut() -> None:
            await self._proxy.shut(draw.uniform(0.1, 1.0))

        async def terminated() -> None:
            async with self._connected() as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1",
                    draw.choice(["pequod%", "pequod", "pequod feed"]),
                )

        async def restarted() -> None:
            await asyncio.to_thread(self._postgres.stop, kill=draw.random() < 0.6)
            await asyncio.sleep(draw.uniform(0, 0.5))
            await asyncio.to_thread(self._postgres.start)

        async def unslotted() -> None:
            async with self._connected() as connection:
                await connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
                try:
                    await connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
                except asyncpg.ObjectInUseError:
                    return

        async def busied() -> None:
            async with self._connected() as connection:
                await connection.execute("COPY unmapped FROM PROGRAM 'seq 200000'")

        faults: dict[str, Fault] = {
            "cut": cut,
            "held": held,
            "shut": shut,
            "terminated": terminated,
            "restarted": restarted,
        }
        return {**faults, "unslotted": unslotted, "busied": busied} if self._feed == "slot" else faults


class FailoverSite(PostgresSite):
    """A database with a standby that is promoted when its primary is killed, again and again.

    The standby follows a moment later, so commits may be gone, even some that the feed has told. It has no slot.
    """

    loses_commits = True

    def __init__(self, postgres: Postgres, proxy: Proxy, mapping: Path) -> None:
        super().__init__(postgres, proxy, mapping, "slot")
        self._promoted = ExitStack()

    def stop(self) -> None:
        """End the standbys that were promoted."""
        self._promoted.close()

    def faults(self, draw: random.Random, *, is_written_through: bool) -> dict[str, Fault]:
        async def promoted() -> None:
            # A socket's path must be short.
            directory = tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True)
            standby = await asyncio.to_thread(Standby, self._postgres, Path(self._promoted.enter_context(directory)))
            await asyncio.to_thread(standby.start)
            self._promoted.callback(lambda: standby.stop(kill=True) if standby.is_running else None)
            await asyncio.sleep(draw.uniform(0, 0.5))
            await asyncio.to_thread(self._postgres.stop, kill=True)
            await asyncio.to_thread(standby.promote)
            self._postgres, self._dsn = standby, standby.dsn("postgres")
            if draw.random() < 0.5:
                # As tools do that keep slots over a failover; this one cannot tell what is gone, either.
                async with self._connected() as connection:
                    await connection.execute("SELECT pg_create_logical_replication_slot('pequod', 'pgoutput')")
            self._proxy.behind = standby.directory
            self._proxy.cut()

        others = super().faults(draw, is_written_through=is_written_through)
        return {name: others[name] for name in ("cut", "busied", "terminated")} | {"promoted": promoted}


@asynccontextmanager
async def site(store: str, folder: Path, postgres: Postgres | None) -> AsyncIterator[Site]:
    """Yield a database: sqlite, notify, slot or failover. After the last one, the cluster may not run any more."""
    mapping = folder / "mapping.toml"
    mapping.write_text(MAPPING)
    if postgres is None:
        yield SqliteSite(folder, mapping)
        return
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pequod-proxy-", ignore_cleanup_errors=True) as short:
        proxy = Proxy(Path(short), postgres.directory)
        await proxy.start()
        try:
            if store == "failover":
                failover = FailoverSite(postgres, proxy, mapping)
                try:
                    yield failover
                finally:
                    failover.stop()
            else:
                yield PostgresSite(postgres, proxy, mapping, "slot" if store == "slot" else "notify")
        finally:
            await proxy.stop()
