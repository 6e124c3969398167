"""Levels of freshness beside real databases: two servers, writers that write around them, sessions between them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import SqliteStore, parse_mappings
from pequod_server.backing.postgres.schema import Mode
from pequod_server.backing.postgres.store import PostgresStore

from pequod.commands.kinds import SCAN
from pequod.freshness import POSTGRES_STATE, SQLITE_STATE, Token, postgres_token, sqlite_token
from tests.backing.test_levels import after, latest, max_age, refusal
from tests.server.plain import outcomes_of, pieces_of

MAPPING = """
[[mapping]]
keys = "p|<poster>|<at:4>"
table = "posts"
slots.at = { column = "at", type = "integer" }
value = "body"
[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
"""
JOINS = "t|<user>|<at:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<at>"
TABLES = """
CREATE TABLE posts (poster text, at integer, body text, PRIMARY KEY (poster, at));
CREATE TABLE subscriptions ("user" text, poster text, PRIMARY KEY ("user", poster));
INSERT INTO subscriptions VALUES ('ann', 'bob');
"""
TIMELINE = pb.ScanRequest(first=b"t|ann|", last=b"t|ann}")
TRIES = 40


class Site:
    """Two servers beside a database, and a program that writes around them."""

    def __init__(self, stubs: list[Any], insert: Callable[[int], Awaitable[bytes]]) -> None:
        self.stubs = stubs
        #: Inserts a post, and returns a token from its own connection.
        self.insert = insert

    async def count(self, server: int, freshness: pb.Freshness | None) -> tuple[int, bytes]:
        request = pb.ScanRequest(first=TIMELINE.first, last=TIMELINE.last, freshness=freshness)
        (reply,) = [reply async for reply in self.stubs[server].Scan(request)]
        return len(reply.keys), reply.header.token


@asynccontextmanager
async def beside_sqlite(path: Path) -> AsyncIterator[Site]:
    file = path / "twip.db"
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = WAL;" + TABLES)
    stores = [SqliteStore(file, parse_mappings(MAPPING)) for _ in range(2)]
    await stores[0].install()

    async def insert(number: int) -> bytes:
        connection.execute("INSERT INTO posts VALUES ('bob', ?, 'Hi')", (number,))
        return bytes(sqlite_token(*connection.execute(SQLITE_STATE).fetchone()))

    async with served(stores) as stubs:
        yield Site(stubs, insert)
    connection.close()


@asynccontextmanager
async def beside_postgres(dsn: str, mode: Mode) -> AsyncIterator[Site]:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    stores = [
        PostgresStore(dsn, parse_mappings(MAPPING), mode=mode, feed_name=name)
        for name in ("one", "two" if mode == "slot" else "one")
    ]
    for store in stores:
        await store.install()

    async def insert(number: int) -> bytes:
        await connection.execute("INSERT INTO posts VALUES ('bob', $1, 'Hi')", number)
        row = await connection.fetchrow(POSTGRES_STATE)
        assert row is not None
        return bytes(postgres_token(*row.values()))

    async with served(stores) as stubs:
        yield Site(stubs, insert)
    for store in stores:
        await store.close()
    await connection.close()


@asynccontextmanager
async def served(stores: list[Any]) -> AsyncIterator[list[Any]]:
    async with AsyncExitStack() as stack:
        stubs = []
        for store in stores:
            config = ServerConfig(listen="127.0.0.1:0", joins=JOINS, backing_mode="write-through")
            server = PequodServer(config, store=store)
            port = await server.start()
            stack.push_async_callback(server.stop)
            channel = aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
            stubs.append(PequodStub(await stack.enter_async_context(channel)))  # type: ignore[no-untyped-call]
        yield stubs


@pytest.fixture(params=["sqlite", "slot", "notify"])
async def site(request: pytest.FixtureRequest, tmp_path: Path, dsn: str) -> AsyncIterator[Site]:
    if request.param == "sqlite":
        async with beside_sqlite(tmp_path) as site:
            yield site
        return
    async with beside_postgres(dsn, request.param) as site:
        yield site


async def test_a_token_of_a_writers_own_connection_is_waited_for_at_every_server(site: Site) -> None:
    for number in range(TRIES):
        token = await site.insert(number)
        for server in range(2):
            assert (await site.count(server, after(token)))[0] == number + 1


async def test_a_session_reads_its_writes_and_never_goes_back_between_servers(site: Site) -> None:
    call = site.stubs[1].Execute()
    for number in range(TRIES):
        request = pb.PutRequest(key=b"p|bob|%04d" % number, value=b"Hi")
        token = (await site.stubs[0].Put(request)).header.token
        found, seen = await site.count(1, after(token))
        assert found == number + 1
        # What the other server showed is there as well.
        assert (await site.count(0, after(seen)))[0] == number + 1
        batch = pb.ExecuteRequest(kinds=bytes([SCAN]), arguments=[b"t|ann|", b"t|ann}"], freshness=after(seen))
        pieces = await pieces_of(call, batch)
        assert len(outcomes_of(bytes([SCAN]), pieces)[0]) == number + 1  # type: ignore[arg-type]
    await call.done_writing()


async def test_the_latest_and_the_youngest_are_what_is_committed(site: Site) -> None:
    for number in range(TRIES):
        await site.insert(number)
        level = latest() if number % 2 else max_age(0)
        found = await asyncio.gather(*(site.count(server, level) for server in (0, 1) for _ in range(3)))
        assert {count for count, _ in found} == {number + 1}


@pytest.mark.parametrize("position", [1 << 62, (1 << 64) - 1])
async def test_a_forged_position_makes_its_own_read_wait_and_nothing_else(site: Site, position: int) -> None:
    token = Token.parse(await site.insert(0))
    assert (await site.count(0, after(bytes(token))))[0] == 1
    forged = bytes(Token(dict.fromkeys(token.positions, position)))
    for _ in range(3):
        assert (await refusal(site.count(0, after(forged, 100))))[1] == "StaleError"
    assert (await site.count(0, after(bytes(token), 0)))[0] == 1


@pytest.mark.parametrize("mode", ["slot", "notify"])
async def test_a_level_is_met_while_a_transaction_stays_open(dsn: str, mode: Mode) -> None:
    """PostgreSQL does not tell what of its log is of open transactions; readers need not wait for their end."""
    async with beside_postgres(dsn, mode) as site:
        other = await asyncpg.connect(dsn)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("INSERT INTO posts VALUES ('liz', 1, 'Hi')")
        for number in range(5):
            token = await site.insert(number)
            assert (await site.count(0, after(token, 2000)))[0] == number + 1
            assert (await site.count(1, latest(2000)))[0] == number + 1
        await transaction.rollback()
        await other.close()
