"""Large transactions of a real database, and large writes to it: the event loop goes on, and nothing is half done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.errors import PequodError
from tests.backing.test_twip import JOIN, Database, Statement, database
from tests.backing.turns import turns

__all__ = ["database"]

#: More than the 50,000 keys for which a pattern is read again as a whole; four times `EACH` are fewer.
POSTS = 56_000
EACH = 8_000
#: Ten times what a turn may take.
TURN_S = 0.2
_INSERT = (
    "INSERT INTO posts (poster, at, body) "
    "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 7999) "
    "SELECT 'w' || (n % 50), n + $1, $2 FROM c"
)
_UPDATE = "UPDATE posts SET body = $1 WHERE at >= $2 AND at < $3"
#: The feed of a slot has tests of its own.
notes = pytest.mark.parametrize("database", ["sqlite", "notify"], indirect=True)


@asynccontextmanager
async def serving(database: Database, **settings: object) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    """Serve to a client that waits: the machine has other things to do."""
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=JOIN, **database.config, **settings))  # type: ignore[arg-type]
    port = await server.start()
    assert server.loader is not None
    server.loader._wait_s = 300.0
    try:
        async with AsyncClient(f"127.0.0.1:{port}", timeout_s=300.0) as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


def inserts(body: str) -> list[Statement]:
    return [(_INSERT, (at, body)) for at in range(0, POSTS, EACH)]


def updates(body: str) -> list[Statement]:
    return [(_UPDATE, (body, at, at + EACH)) for at in range(0, POSTS, EACH)]


@notes
async def test_a_large_commit_that_nobody_reads_stops_nobody_and_is_not_read(database: Database) -> None:
    async with serving(database) as (server, client):
        assert server.loader is not None
        assert await client.count("p|w7|", "p|w7}") == 0
        async with turns() as longest:
            await database.application._run([(_INSERT, (0, "one")), ("DELETE FROM posts WHERE poster <> 'w8'", ())])
            await server.loader.caught_up()
        assert longest.s < TURN_S
        assert server.loader.counters.changes == EACH // 50
        assert server.loader.counters.reloads == 0
        async with turns() as longest:
            await database.application._run(inserts("two")[1:])
            await server.loader.caught_up()
        assert longest.s < TURN_S
        assert server.loader.counters.reloads == 0
        assert await client.count("p|w7|", "p|w7}") == (POSTS - EACH) // 50


@notes
async def test_a_large_commit_of_what_is_loaded_stops_nobody(database: Database) -> None:
    await database.application._run(inserts("one"))
    async with serving(database) as (server, client):
        assert server.loader is not None
        async with turns() as longest:
            assert await client.count("p|", "p}") == POSTS
        assert longest.s < TURN_S
        async with turns() as longest:
            await database.application._run(updates("two"))
            await server.loader.caught_up()
        assert longest.s < TURN_S
        assert {value for _, value in await client.scan("p|w7|", "p|w7}")} == {b"two"}
        # Fewer rows than are read again as a whole.
        assert await client.count("p|", "p}") == POSTS
        async with turns() as longest:
            await database.application._run(updates("three")[:4])
            await server.loader.caught_up()
        assert longest.s < TURN_S
        assert server.loader.counters.reloads == 1
        assert [value for _, value in await client.scan("p|w7|", "p|w7}")].count(b"three") == 4 * EACH // 50


@notes
async def test_many_rows_are_put_through_in_slices_and_all_or_none(database: Database) -> None:
    rows = {f"p|w{number % 50}|{number:010}": "one" for number in range(20_000)}
    async with serving(database, backing_mode="write-through") as (_, client):
        assert await client.count("p|w7|", "p|w7}") == 0
        async with turns() as longest:
            await client.multi_put(rows)
        assert longest.s < TURN_S
        assert await client.count("p|w7|", "p|w7}") == 400
        # The last row makes no key of the table: an integer is not so large.
        wrong = dict.fromkeys(rows, "two") | {"p|w7|9223372036854775808": "two"}
        with pytest.raises(PequodError):
            await client.multi_put(wrong)
        assert {value for _, value in await client.scan("p|w7|", "p|w7}")} == {b"one"}
        await client.multi_put(dict.fromkeys(list(rows)[:1_000], "three"))
        assert {value for _, value in await client.scan("p|", "p}")} == {b"one", b"three"}
        assert await client.count("p|", "p}") == 20_000
