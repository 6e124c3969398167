"""Removals through to each database: what it has decides, not what the cache has by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pequod.client import AsyncClient
from tests.backing.test_twip import Database, database, serving
from tests.peer.homes import computing, running

__all__ = ["database"]

TRIES = 40


@asynccontextmanager
async def writing_through(database: Database, place: str) -> AsyncIterator[AsyncClient]:
    """A client of the server with the database, or of a compute that passes writes on to it."""
    async with running(backing_mode="write-through", **database.config) as home:  # type: ignore[arg-type]
        if place == "home":
            yield home.client
        else:
            async with computing([home.address]) as compute:
                yield compute.client


async def insert(database: Database, time: int) -> None:
    await database.application._run(
        [("INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)", ("bob", time, "hello"))]
    )


@pytest.mark.parametrize("place", ["home", "compute"])
async def test_a_removal_says_what_the_database_found(database: Database, place: str) -> None:
    async with writing_through(database, place) as client:
        await client.scan("p|bob|", "p|bob}")
        answers: list[object] = []
        for time in range(TRIES):
            await insert(database, time)
            if time % 2:
                answers.append(await client.remove(f"p|bob|{time:010}"))
            else:
                batch = client.batch()
                batch.remove(f"p|bob|{time:010}")
                batch.remove("p|bob|0000009999")
                batch.remove(f"p|bob|{time:010}")
                batch.put(f"p|bob|{time:010}", "again")
                batch.remove(f"p|bob|{time:010}")
                first, *others = await batch.send()
                assert others == [False, False, None, True]
                answers.append(first)
        assert answers == [True] * TRIES
        assert await client.remove("p|bob|0000000000") is False


@pytest.mark.parametrize("place", ["home", "compute"])
async def test_a_removed_range_has_no_rows_in_the_database(database: Database, place: str) -> None:
    async with writing_through(database, place) as client:
        await client.scan("p|bob|", "p|bob}")
        counts = []
        for time in range(TRIES):
            await insert(database, time)
            counts.append(await client.remove_range("p|bob|", "p|bob}"))
        assert counts == [1] * TRIES
        assert await client.count("p|bob|", "p|bob}") == 0


async def test_removals_that_meet_count_each_row_once(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (_, client):
        for start in range(0, TRIES, 10):
            keys = [f"p|bob|{start + number:010}" for number in range(10)]
            await client.multi_put(dict.fromkeys(keys, "hello"))
            calls = [client.remove_range("p|bob|", "p|bob}"), *(client.remove(key) for key in keys)]
            assert sum(await asyncio.gather(*calls)) == len(keys)
