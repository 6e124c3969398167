"""Real databases behind one server: two files of SQLite, and a file of SQLite beside a PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import BackingStore, KeyRange, SqliteStore, parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.database.databases import HomeGroup

import pequod
from pequod.client import AsyncClient
from pequod.freshness import NO_TOKEN, Latest, Token
from tests.backing.conftest import Connection, database, dsn, postgres
from tests.groups.pair import JOINS

__all__ = ["database", "dsn", "postgres"]
SUBSCRIPTIONS = parse_mappings("""
[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
""")
POSTS = parse_mappings("""
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
""")
WRITES = 30
#: The machine may be busy.
LATEST = Latest(wait_s=30.0)


async def sqlite(path: Path, schema: str, store: Callable[[], SqliteStore]) -> SqliteStore:
    """Make a file with a table, and what its feed needs."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(schema)
    installing = store()
    await installing.install()
    await installing.close()
    return store()


async def subscriptions(folder: Path) -> SqliteStore:
    path = folder / "subscriptions.db"
    schema = 'CREATE TABLE subscriptions ("user" TEXT, poster TEXT, PRIMARY KEY ("user", poster)) STRICT'
    return await sqlite(path, schema, lambda: SqliteStore(str(path), SUBSCRIPTIONS))


@asynccontextmanager
async def serving(first: BackingStore, second: BackingStore) -> AsyncIterator[AsyncClient]:
    """Serve subscriptions of one database and posts of another."""
    groups = [
        HomeGroup("people", first, (KeyRange(b"s|", b"s}"),)),
        HomeGroup("posts", second, (KeyRange(b"p|", b"p}"),)),
    ]
    config = ServerConfig(listen="127.0.0.1:0", joins=JOINS, backing_mode="write-through")
    server = PequodServer(config, groups=groups)
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with AsyncClient(target, timeout_s=60.0) as client:
            yield client
    finally:
        await server.stop()


async def sessions_see_their_writes(client: AsyncClient) -> Token:
    """Write to both databases in sessions at the same time, each of which sees what it wrote; return what all saw."""
    seen = NO_TOKEN

    async def user(name: str) -> None:
        nonlocal seen
        session = client.session()
        for number in range(WRITES):
            await session.put(f"p|{name}|{number:04}", f"{name} {number}")
            if number == WRITES // 2:
                await session.put(f"s|ann|{name}", "")
            rows = await session.scan("t|ann|", "t|ann}")
            mine = [value for key, value in rows if key.endswith(name.encode())]
            expected = [f"{name} {one}".encode() for one in range(number + 1)] if number >= WRITES // 2 else []
            assert mine == expected
        seen = seen.merged(session.token)

    await asyncio.gather(*(user(name) for name in ("bob", "liz", "zoe")))
    assert len(await client.scan("t|ann|", "t|ann}", freshness=LATEST)) == 3 * WRITES
    return seen


async def test_sessions_over_two_files_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "posts.db"
    schema = "CREATE TABLE posts (poster TEXT, at INTEGER, body TEXT, PRIMARY KEY (poster, at)) STRICT"
    posts = await sqlite(path, schema, lambda: SqliteStore(str(path), POSTS))
    async with serving(await subscriptions(tmp_path), posts) as client:
        token = await sessions_see_their_writes(client)
        assert len(token.positions) == 2
        # A program that writes around takes its token from its own connection, and names one of the databases.
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("INSERT INTO posts VALUES ('bob', 9000, 'around')")
            connection.commit()
            around = pequod.token_of(connection)
        assert set(around.positions) < set(token.positions)
        assert await client.get("t|ann|9000|bob", freshness=pequod.after(around)) == b"around"


@pytest.mark.parametrize("feed", ["slot", "notify"])
async def test_sessions_over_sqlite_and_postgresql(tmp_path: Path, dsn: str, database: Connection, feed: str) -> None:
    installing = PostgresStore(dsn, POSTS, mode=feed)  # type: ignore[arg-type]
    await installing.install()
    await installing.close()
    posts = PostgresStore(dsn, POSTS, mode=feed)  # type: ignore[arg-type]
    async with serving(await subscriptions(tmp_path), posts) as client:
        token = await sessions_see_their_writes(client)
        assert len(token.positions) == 2
        await database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 9000, 'around')")
        assert await client.get("t|ann|9000|bob", freshness=LATEST) == b"around"
