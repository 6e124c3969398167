"""Twip in write-around mode: a real server before a real database, in each way that changes come."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import SqliteStore, parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store

from pequod.client import AsyncClient
from pequod.errors import PequodError, UnavailableError
from tests.backing.conftest import Connection, Postgres

MAPPING = """
[[mapping]]
keys = "p|<poster>|<time:10>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"

[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
"""
JOIN = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
USERS = [f"u{number:02}" for number in range(30)]
FEEDS = ["sqlite", "slot", "notify"]

Statement = tuple[str, tuple[object, ...]]


class Application:
    """Writes posts and subscriptions to the database, and knows what timelines they make."""

    def __init__(self, run: Callable[[Sequence[Statement]], Awaitable[None]], seed: int) -> None:
        self._run = run
        self._random = random.Random(seed)
        self.posts: dict[tuple[str, int], str] = {}
        self.subscriptions: set[tuple[str, str]] = set()

    async def write(self, count: int) -> None:
        """Carry out transactions at random: posts, edits, deletions, subscriptions that come and go."""
        for _ in range(count):
            await self._run([self._draw() for _ in range(self._random.choice([1, 1, 3]))])

    def _draw(self) -> Statement:
        chance, user, other = self._random.random(), *self._random.choices(USERS, k=2)
        if chance < 0.35:
            time, body = len(self.posts) + self._random.randrange(10**6), f"body {chance}"
            self.posts[user, time] = body
            return "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)", (user, time, body)
        if chance < 0.45 and self.posts:
            (user, time), body = self._random.choice(sorted(self.posts)), f"edited {chance}"
            self.posts[user, time] = body
            return "UPDATE posts SET body = $3 WHERE poster = $1 AND at = $2", (user, time, body)
        if chance < 0.55 and self.posts:
            user, time = self._random.choice(sorted(self.posts))
            del self.posts[user, time]
            return "DELETE FROM posts WHERE poster = $1 AND at = $2", (user, time)
        if (user, other) in self.subscriptions:
            self.subscriptions.remove((user, other))
            return 'DELETE FROM subscriptions WHERE "user" = $1 AND poster = $2', (user, other)
        self.subscriptions.add((user, other))
        return 'INSERT INTO subscriptions ("user", poster) VALUES ($1, $2)', (user, other)

    def timeline(self, user: str) -> list[tuple[bytes, bytes]]:
        """Return what the database makes of a timeline, from scratch."""
        return sorted(
            (f"t|{user}|{time:010}|{poster}".encode(), body.encode())
            for (poster, time), body in self.posts.items()
            if (user, poster) in self.subscriptions
        )


def in_sqlite(path: Path, statements: Sequence[Statement]) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for sql, arguments in statements:
            connection.execute(sql.replace("$", "?"), arguments)
        connection.execute("COMMIT")
    connection.close()


class Database:
    """A database with the schema of Twip and a feed installed."""

    def __init__(self, config: dict[str, object], application: Application) -> None:
        self.config = config
        self.application = application


@pytest.fixture(params=FEEDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(MAPPING)
    feed: str = request.param
    schema = (
        "CREATE TABLE posts (poster TEXT NOT NULL, at BIGINT NOT NULL, body TEXT, PRIMARY KEY (poster, at));"
        'CREATE TABLE subscriptions ("user" TEXT, poster TEXT, PRIMARY KEY ("user", poster));'
    )
    if feed == "sqlite":
        path = tmp_path / "twip.db"
        connection = sqlite3.connect(path)
        connection.executescript("PRAGMA journal_mode = WAL;" + schema)
        connection.close()
        sqlite_store = SqliteStore(path, parse_mappings(MAPPING))
        await sqlite_store.install()
        await sqlite_store.close()
        application = Application(lambda statements: asyncio.to_thread(in_sqlite, path, statements), 1)
        yield Database({"backing": f"sqlite:{path}", "backing_mapping": mapping}, application)
        return
    dsn: str = await _postgres_dsn(request)
    admin: Connection = await asyncpg.connect(dsn)
    await admin.execute(schema)

    async def in_postgres(statements: Sequence[Statement]) -> None:
        async with admin.transaction():
            for sql, arguments in statements:
                await admin.execute(sql, *arguments)

    config: dict[str, object] = {"backing": dsn, "backing_mapping": mapping, "backing_feed": feed}
    store = make_store(ServerConfig(**config))  # type: ignore[arg-type]
    assert isinstance(store, PostgresStore)
    await store.install()
    await store.close()
    yield Database(config, Application(in_postgres, 1))
    await admin.close()


async def _postgres_dsn(request: pytest.FixtureRequest) -> str:
    from tests.backing.conftest import clear

    postgres: Postgres = request.getfixturevalue("postgres")
    dsn = postgres.dsn("postgres")
    await clear(dsn)
    return dsn


@asynccontextmanager
async def serving(database: Database, **settings: object) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=JOIN, **database.config, **settings))  # type: ignore[arg-type]
    port = await server.start()
    try:
        # What hangs ends by the suite's own limit: what is only slow is no failure.
        async with AsyncClient(f"127.0.0.1:{port}", timeout_s=100.0) as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


async def timeline(client: AsyncClient, user: str) -> list[tuple[bytes, bytes]]:
    return list(await client.scan(f"t|{user}|", f"t|{user}}}"))


async def caught_up(server: PequodServer) -> None:
    assert server.loader is not None
    await server.loader.caught_up()


async def test_timelines_equal_a_recomputation_from_the_database(database: Database) -> None:
    application = database.application
    await application.write(100)
    async with serving(database) as (server, client):
        writing = asyncio.create_task(application.write(200))
        readings = 0
        while not writing.done():
            await asyncio.gather(*(timeline(client, user) for user in random.Random(readings).sample(USERS, 5)))
            readings += 1
        await writing
        await caught_up(server)
        for user in USERS:
            assert await timeline(client, user) == application.timeline(user)
        assert server.loader is not None
        assert server.loader.counters.changes_applied > 0


async def test_a_thousand_absent_source_ranges_are_two_round_trips(database: Database) -> None:
    application = database.application
    statements: list[Statement] = []
    for number in range(1000):
        poster = f"v{number}"
        statements.append(('INSERT INTO subscriptions ("user", poster) VALUES ($1, $2)', ("ann", poster)))
        statements.append(("INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)", (poster, number, "Hi")))
    await application._run(statements)
    async with serving(database) as (server, client):
        assert len(await timeline(client, "ann")) == 1000
        assert server.loader is not None
        assert (server.loader.counters.flights, server.loader.counters.ranges) == (2, 1001)


async def test_what_is_put_in_write_through_is_in_the_database_and_in_timelines(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.put("s|ann|bob", "")
        assert await timeline(client, "ann") == []
        await client.put("p|bob|0000000100", "Hi")
        assert await timeline(client, "ann") == [(b"t|ann|0000000100|bob", b"Hi")]
        assert await client.remove("s|ann|bob")
        assert await timeline(client, "ann") == []
        server.engine.forget(b"", None)
        assert await client.get("p|bob|0000000100") == b"Hi"


@pytest.mark.parametrize("database", ["slot", "notify"], indirect=True)
async def test_a_database_that_is_restarted_loses_nothing(database: Database, postgres: Postgres) -> None:
    dsn = str(database.config["backing"])

    async def run(statements: Sequence[Statement]) -> None:
        connection = await asyncpg.connect(dsn)
        for sql, arguments in statements:
            await connection.execute(sql, *arguments)
        await connection.close()

    application = Application(run, 2)
    await application.write(60)
    async with serving(database) as (server, client):
        for user in USERS[:15]:
            assert await timeline(client, user) == application.timeline(user)
        await asyncio.to_thread(postgres.stop)
        with pytest.raises((PequodError, UnavailableError)):
            await client.scan("p|nobody|", "p|nobody}")
        await asyncio.to_thread(postgres.start)
        await application.write(60)
        await caught_up(server)
        for user in USERS:
            assert await timeline(client, user) == application.timeline(user)
