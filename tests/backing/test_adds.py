"""Adds where a database owns the keys: each is one transaction of it, and none is lost between servers."""

from __future__ import annotations

import asyncio

import pytest
from pequod_server import ServerConfig
from pequod_server.backing import SqliteStore
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store

from pequod.engine import Rows
from pequod.errors import InvalidDeltaError, NotNumberError
from tests.backing.test_loader import FOLLOWING
from tests.backing.test_loader import serving as serving_fake
from tests.backing.test_twip import Database, database, serving, timeline

__all__ = ["database"]
KEY = "p|bob|0000000001"


async def test_the_database_adds_and_timelines_follow(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.put("s|ann|bob", "")
        batch = client.batch()
        batch.add(KEY, 5)
        batch.add(KEY, "-0.5")
        batch.add(KEY, "one")
        batch.put("p|bob|0000000002", "text")
        batch.add("p|bob|0000000002", 1)
        batch.scan("p|bob|", "p|bob}")
        results = await batch.send()
        assert results[:2] == [b"5", b"4.5"]
        assert isinstance(results[2], InvalidDeltaError)
        assert isinstance(results[4], NotNumberError)
        assert results[5] == Rows([KEY.encode(), b"p|bob|0000000002"], [b"4.5", b"text"])
        assert await timeline(client, "ann") == [
            (b"t|ann|0000000001|bob", b"4.5"),
            (b"t|ann|0000000002|bob", b"text"),
        ]
        server.engine.forget(b"", None)
        assert await client.add(KEY, 1) == b"5.5"


async def test_no_add_of_two_servers_is_lost(database: Database) -> None:
    # Each server beside PostgreSQL has a slot of its own.
    second = {**database.config, "backing_feed_name": "second"}
    store = make_store(ServerConfig(**second))  # type: ignore[arg-type]
    assert isinstance(store, PostgresStore | SqliteStore)
    await store.install()
    await store.close()
    async with (
        serving(database, backing_mode="write-through") as (_, one),
        serving(Database(second, database.application), backing_mode="write-through") as (_, two),
    ):
        sums = await asyncio.gather(*(client.add(KEY, 1) for client in (one, two) for _ in range(10)))
        assert sorted(map(int, sums)) == list(range(1, 21)), "each add had a sum of its own"
        session = one.session(two.last_token)
        assert await session.get(KEY) == b"20"


async def test_the_sum_is_the_database_s() -> None:
    async with serving_fake(FOLLOWING, backing_mode="write-through") as setting:
        # The database has a row of which the cache has not heard.
        setting.store.commit({b"p|bob|0300": b"41"})
        assert await setting.client.add("p|bob|0300", 1) == b"42"
        assert await setting.client.get("p|bob|0300") == b"42"
        setting.store.commit({b"p|bob|0300": b"text"})
        with pytest.raises(NotNumberError):
            await setting.client.add("p|bob|0300", 1)
