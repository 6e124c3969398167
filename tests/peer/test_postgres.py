"""Homes beside a PostgreSQL: places mean the same at all of them where the feed is a slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore

from tests.peer.homes import LATEST, MAPPING, TABLES, computing, running, until

MODES = ["slot", "notify"]


def store(dsn: str, mode: str, name: str) -> PostgresStore:
    return PostgresStore(dsn, parse_mappings(MAPPING), mode=mode, feed_name=name)  # type: ignore[arg-type]


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    yield connection
    await connection.close()


@pytest.mark.parametrize("mode", MODES)
async def test_a_home_that_dies_is_replaced_by_one_with_a_feed_of_its_own(
    dsn: str, connection: asyncpg.Connection[asyncpg.Record], mode: str
) -> None:
    for name in ("one", "two"):
        installing = store(dsn, mode, name)
        await installing.install()
        await installing.close()
    await connection.execute("INSERT INTO subs VALUES ('ann', 'bob', '1'), ('ann', 'cat', '1')")
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running(store(dsn, mode, "one")))
        two = await stack.enter_async_context(running(store(dsn, mode, "two")))
        compute = await stack.enter_async_context(computing([one.address, two.address]))
        assert await compute.client.scan(prefix="t|ann|", freshness=LATEST) == []
        await until(lambda: two.server.peers.origin.relay.complete_from is not None)
        writing = asyncio.create_task(write(connection, 120))
        for _ in range(20):
            await checked(compute.client.scan(prefix="t|ann|", freshness=LATEST))
        await one.server.close()
        while not writing.done():
            await checked(compute.client.scan(prefix="t|ann|", freshness=LATEST))
        await writing
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 240
        assert compute.server.loader is not None
        assert compute.server.loader.counters.reloads == (0 if mode == "slot" else 1)


async def write(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    for at in range(count):
        await connection.execute("INSERT INTO posts VALUES ('bob', $1, 'Hi'), ('cat', $1, 'Hi')", f"{at:04d}")
        await asyncio.sleep(0.005)


async def checked(scan: object) -> None:
    rows = await scan  # type: ignore[misc]
    times = [key.split(b"|")[2] for key, _ in rows]
    assert times[::2] == times[1::2], "both posts of a commit, or neither"
    assert times[::2] == [b"%04d" % at for at in range(len(rows) // 2)], "commits without gaps"
