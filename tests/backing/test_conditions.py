"""Writes under a condition where a database owns the keys: the database decides, also between other writers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pequod_server import ServerConfig
from pequod_server.backing import SqliteStore
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store

from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import PequodError
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Unmet, if_value
from tests.backing.test_loader import FOLLOWING
from tests.backing.test_loader import serving as serving_fake
from tests.backing.test_twip import Database, database, serving, timeline

__all__ = ["database"]


async def test_conditions_hold_in_the_database_and_timelines_follow(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.put("s|ann|bob", "")
        key = "p|bob|0000000001"
        batch = client.batch()
        batch.put(key, "one", condition=IF_ABSENT)
        batch.put(key, "two", condition=IF_ABSENT)
        batch.put(key, "two", condition=if_value("one"))
        batch.put("p|bob|0000000002", "none", condition=IF_PRESENT)
        batch.put("p|bob|no number", "none", condition=IF_ABSENT)
        batch.scan("p|bob|", "p|bob}")
        results = await batch.send()
        assert results[:4] == [MET, Unmet(b"one"), MET, Unmet(None)]
        assert isinstance(results[4], PequodError)
        assert results[5] == Rows([key.encode()], [b"two"])
        assert await timeline(client, "ann") == [(b"t|ann|0000000001|bob", b"two")]
        assert await client.remove(key, condition=if_value("one")) == Unmet(b"two")
        assert await client.remove(key, condition=if_value("two")) == MET
        server.engine.forget(b"", None)
        assert await timeline(client, "ann") == []


async def test_one_of_many_takes_a_key_and_no_swap_is_lost(database: Database) -> None:
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
        taken = await asyncio.gather(
            *(client.put("p|bob|0000000001", "0", condition=IF_ABSENT) for client in (one, two) for _ in range(5))
        )
        assert [bool(outcome) for outcome in taken].count(True) == 1
        await asyncio.gather(*(_count_up(client, 5) for client in (one, two) for _ in range(2)))
        session = one.session(two.last_token)
        assert await session.get("p|bob|0000000001") == b"20"


async def test_a_row_that_comes_between_look_and_write_is_not_written_over(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if str(database.config["backing"]).startswith("sqlite"):
        return  # its transactions come one after the other
    rows, looks = PostgresSession._rows, 0

    async def look(self: PostgresSession, *arguments: Any) -> dict[bytes, bytes]:
        nonlocal looks
        found = await rows(self, *arguments)
        looks += 1
        if looks == 1:
            insert = "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)"
            await database.application._run([(insert, ("bob", 1, "theirs"))])
        return found

    async with serving(database, backing_mode="write-through") as (_, client):
        monkeypatch.setattr(PostgresSession, "_rows", look)
        assert await client.put("p|bob|0000000001", "ours", condition=IF_ABSENT) == Unmet(b"theirs")
    assert looks >= 2


async def _count_up(client: AsyncClient, times: int) -> None:
    for _ in range(times):
        value = await client.get("p|bob|0000000001")
        assert value is not None
        while True:
            outcome = await client.put("p|bob|0000000001", b"%d" % (int(value) + 1), condition=if_value(value))
            if not isinstance(outcome, Unmet):
                break
            assert outcome.value is not None
            value = outcome.value


async def test_what_was_told_is_what_later_reads_show() -> None:
    async with serving_fake(FOLLOWING, backing_mode="write-through") as setting:
        # The database has a row of which the cache has not heard.
        setting.store.commit({b"p|bob|0300": b"theirs"})
        assert await setting.client.put("p|bob|0300", "ours", condition=IF_ABSENT) == Unmet(b"theirs")
        assert await setting.client.get("p|bob|0300") == b"theirs"
