"""PostgreSQL: timelines kept by triggers, or none at all and a query for each check.

p(poster, tick, tweet)   s(poster, follower, receives)   t(follower, tick, poster, tweet)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import asyncpg
from pequod_workloads.twip import timeline_key, tweet

from pequod.engine import Rows
from pequod_bench.systems.postgres_cluster import PostgresServer, find_postgres, started_cluster
from pequod_bench.systems.system import BATCH, PeerError, Presence, Server, SystemWorkload, Work
from pequod_bench.workloads.stream import CHECK, POST, SUBSCRIBE

Timelines = Literal["triggers", "query"]
#: Many statements under way on a connection, or each waits for the one before it: all that the paper's client library
#: could do, which learned pipelining in PostgreSQL 14.
Sending = Literal["pipelined", "one by one"]

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "shared_buffers": "1GB",
    "bgwriter_lru_maxpages": "0",
    "jit": "off",
    # The tables are nearly empty when they are analysed: without these, plans for such tables would stay.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
#: Connections that check, beside one that writes; more gain nothing on two cores.
_READERS: Final[dict[Sending, int]] = {"pipelined": 2, "one by one": 8}

_TABLES: Final = """
CREATE UNLOGGED TABLE s (poster int4, follower int4, receives bool, PRIMARY KEY (poster, follower));
CREATE UNLOGGED TABLE p (poster int4, tick int4, tweet bytea, PRIMARY KEY (poster, tick));
"""
_TRIGGERS: Final = """
CREATE UNLOGGED TABLE t (follower int4, tick int4, poster int4, tweet bytea, PRIMARY KEY (follower, tick, poster));
CREATE FUNCTION posted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO t SELECT follower, NEW.tick, NEW.poster, NEW.tweet FROM s WHERE poster = NEW.poster AND receives;
  RETURN NULL;
END $$;
CREATE FUNCTION followed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO t SELECT NEW.follower, tick, poster, tweet FROM p WHERE poster = NEW.poster;
  RETURN NULL;
END $$;
CREATE TRIGGER posted AFTER INSERT ON p FOR EACH ROW EXECUTE FUNCTION posted();
CREATE TRIGGER followed AFTER INSERT ON s FOR EACH ROW WHEN (NEW.receives) EXECUTE FUNCTION followed();
"""
_CLEAR: Final = """
DROP TABLE IF EXISTS s, p, t;
DROP FUNCTION IF EXISTS posted, followed;
"""
_FOLLOWS_INDEX: Final = "CREATE INDEX ON s (follower, poster);"
_FOLLOW: Final = "INSERT INTO s VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_POST: Final = "INSERT INTO p VALUES ($1, $2, $3)"
_CHECK: Final[dict[Timelines, str]] = {
    "triggers": "SELECT tick, poster, tweet FROM t WHERE follower = $1 AND tick >= $2 ORDER BY tick, poster",
    "query": "SELECT tick, poster, tweet FROM s JOIN p USING (poster) WHERE follower = $1 AND tick >= $2 "
    "ORDER BY tick, poster",
}


#: Rows to write: poster, follower, and whether the follower receives; poster, tick and text.
_Follows = list[tuple[int, int, bool]]
_Posts = list[tuple[int, int, bytes]]
_Writes = tuple[_Follows, _Posts]


class PostgresSystem:
    """A PostgreSQL cluster of its own, in a temporary directory."""

    def __init__(
        self, name: str, title: str, timelines: Timelines, tuning: str, *, sending: Sending = "pipelined"
    ) -> None:
        self.name = name
        self.title = title
        self.tuning = tuning
        self._timelines: Timelines = timelines
        self._sending: Sending = sending

    def find(self) -> Presence:
        return find_postgres()

    def started(self, directory: Path) -> AbstractContextManager[Server]:
        return started_cluster(directory, _SETTINGS)

    @asynccontextmanager
    async def session(self, server: Server, workload: SystemWorkload) -> AsyncIterator[_PostgresSession]:
        dsn = PostgresServer(server.port, server.pid).dsn
        async with AsyncExitStack() as stack:
            connections = []
            for _ in range(1 + _READERS[self._sending]):
                connections.append(await asyncpg.connect(dsn))
                stack.push_async_callback(connections[-1].close)
            session = _PostgresSession if self._sending == "pipelined" else _OneByOne
            yield session(connections, workload, self._timelines)


_COMMON: Final = (
    "fsync, synchronous_commit and full_page_writes off, unlogged tables, 1 GB of shared buffers, no checkpoints, no "
    "background writer, no jit, analysed after loading, plans that use the indexes; integers for users and times; "
    "asyncpg with prepared statements."
)
_PIPELINED: Final = (
    "Pipelined by executemany and fetchmany, 256 operations to a message; writes take one connection, so that no two "
    "of them wait for each other, checks the other two."
)
POSTGRES: Final = PostgresSystem(
    "postgres", "PostgreSQL", "triggers", f"Timelines kept by triggers. {_COMMON} {_PIPELINED}"
)
POSTGRES_CALLS: Final = PostgresSystem(
    "postgres-calls",
    "PostgreSQL, call by call",
    "triggers",
    f"Timelines kept by triggers. {_COMMON} Each of nine connections, one of which writes, sends a statement when the "
    "one before it is answered, as the client library of the paper's day has to.",
    sending="one by one",
)
POSTGRES_QUERY: Final = PostgresSystem(
    "postgres-query", "PostgreSQL, no timelines", "query", f"Every check is a join of s and p. {_COMMON} {_PIPELINED}"
)


@asynccontextmanager
async def _one_error() -> AsyncIterator[None]:
    """Turn what the tasks of a group met into one error."""
    try:
        yield
    except* (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as group:
        raise PeerError(f"PostgreSQL failed: {group.exceptions[0]}") from group


class _PostgresSession:
    def __init__(self, connections: Sequence[Any], workload: SystemWorkload, timelines: Timelines) -> None:
        self._writer, *self._readers = connections
        self._workload = workload
        self._timelines = timelines
        self._receivers = workload.receivers
        self._writing = asyncio.Lock()
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        for reader in self._readers:
            self._free.put_nowait(reader)

    async def load(self) -> None:
        await self._writer.execute(_TABLES)
        graph = self._workload.stream.graph
        users, posters = graph.users.tolist(), graph.posters.tolist()
        rows = sorted((poster, user, user in self._receivers) for user, poster in zip(users, posters, strict=True))
        await self._writer.copy_records_to_table("s", records=rows)
        await self._writer.execute(_TRIGGERS if self._timelines == "triggers" else _FOLLOWS_INDEX)
        await self._writer.execute("VACUUM ANALYZE")

    async def run(self) -> Work:
        """Carry out messages of operations: writes one after the other, checks on any free connection."""
        stream, free = self._workload.stream, self._free
        # One message waits while another is written: the writer never idles, and is never far behind the checks.
        writes: asyncio.Queue[_Writes | None] = asyncio.Queue(1)
        row_count = command_count = message_count = 0

        async def check(reader: Any, checks: list[tuple[int, int]]) -> None:
            nonlocal row_count
            records = await reader.fetchmany(_CHECK[self._timelines], checks)
            row_count += len(records)
            free.put_nowait(reader)

        async with _one_error(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all(writes))
            for start in range(0, stream.tick_count, BATCH):
                follows, posts, checks = self._message(start)
                await writes.put((follows, posts))
                tasks.create_task(check(await free.get(), checks))
                command_count += len(follows) + len(posts) + len(checks)
                message_count += bool(follows) + bool(posts) + bool(checks)
            await writes.put(None)
        return Work(row_count, command_count, message_count)

    def _message(self, start: int) -> tuple[_Follows, _Posts, list[tuple[int, int]]]:
        stream, follows, posts, checks = self._workload.stream, _Follows(), _Posts(), list[tuple[int, int]]()
        operations = stream.operations(start, start + BATCH)
        for tick, (kind, user, detail) in enumerate(operations, stream.first_tick + start):
            if kind == CHECK:
                checks.append((user, detail))
            elif kind == SUBSCRIBE:
                follows.append((detail, user, user in self._receivers))
            elif kind == POST:
                posts.append((user, tick, tweet(tick, self._workload.tweet_bytes)))
        return follows, posts, checks

    async def _write_all(self, writes: asyncio.Queue[_Writes | None]) -> None:
        while (message := await writes.get()) is not None:
            follows, posts = message
            if follows:
                await self._writer.executemany(_FOLLOW, follows)
            if posts:
                await self._writer.executemany(_POST, posts)

    async def check(self, user: int, since: int) -> int:
        reader = await self._free.get()
        try:
            async with _one_error():
                return len(await reader.fetch(_CHECK[self._timelines], user, since))
        finally:
            self._free.put_nowait(reader)

    async def post(self, poster: int, tick: int, text: bytes) -> None:
        async with _one_error(), self._writing:
            await self._writer.execute(_POST, poster, tick, text)

    async def clear(self) -> None:
        await self._writer.execute(_CLEAR)

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        return [await self._timeline(user) for user in users]

    async def _timeline(self, user: int) -> Rows:
        records = await self._writer.fetch(_CHECK[self._timelines], user, 0)
        return Rows([timeline_key(user, tick, poster) for tick, poster, _ in records], [text for *_, text in records])


class _OneByOne(_PostgresSession):
    """Statements that wait for each other: the writes in their order, the checks on whichever connection is free."""

    async def run(self) -> Work:
        """Carry out all operations, a round trip each; writes and checks are never far apart."""
        writes: asyncio.Queue[_Writes | None] = asyncio.Queue(1)
        checks: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue(BATCH)
        follow, post = await self._writer.prepare(_FOLLOW), await self._writer.prepare(_POST)

        async def write() -> None:
            while (message := await writes.get()) is not None:
                follows, posts = message
                for subscription in follows:
                    await follow.fetch(*subscription)
                for written in posts:
                    await post.fetch(*written)

        async def read(reader: Any) -> int:
            statement = await reader.prepare(_CHECK[self._timelines])
            row_count = 0
            while (check := await checks.get()) is not None:
                row_count += len(await statement.fetch(*check))
            return row_count

        command_count = 0
        async with _one_error(), asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            reads = [tasks.create_task(read(reader)) for reader in self._readers]
            for start in range(0, self._workload.stream.tick_count, BATCH):
                follows, posts, found = self._message(start)
                command_count += len(follows) + len(posts) + len(found)
                await writes.put((follows, posts))
                for check in found:
                    await checks.put(check)
            await writes.put(None)
            for _ in reads:
                await checks.put(None)
        return Work(sum([read.result() for read in reads]), command_count, command_count)
