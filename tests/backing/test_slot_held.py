"""A slot whose connection is half open: its machine has no power or network, and PostgreSQL does not know that yet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.chaos.proxy import Proxy
from tests.backing.conftest import Connection, Postgres
from tests.backing.feed import Follower, following, until
from tests.backing.postgres_stores import EVERYTHING, content, installed, make

POSTS_TEXT = """
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
"""
POSTS = parse_mappings(POSTS_TEXT)


@pytest.fixture
async def link(dsn: str, postgres: Postgres) -> AsyncIterator[Proxy]:
    # A socket's path must be short.
    with TemporaryDirectory(prefix="pequod-pg-") as folder:
        proxy = Proxy(Path(folder), postgres.directory)
        await proxy.start()
        yield proxy
        proxy.let_go()
        await proxy.stop()


def through(link: Proxy) -> str:
    return f"postgresql://postgres@/postgres?host={link.directory}"


async def insert(database: Connection, poster: str) -> None:
    await database.execute("INSERT INTO posts (poster, at) VALUES ($1, 1)", poster)


async def follow_until_the_power_fails(store: PostgresStore, link: Proxy, database: Connection) -> None:
    """Follow the slot, and be gone without a word."""
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "before")
        await follower.caught_up()
        link.hold_on()


async def sender_of(database: Connection) -> int | None:
    pid: int | None = await database.fetchval("SELECT active_pid FROM pg_replication_slots")
    return pid


async def test_a_start_after_a_power_cut_is_told_what_holds_its_slot_and_how_to_end_it(
    dsn: str, database: Connection, link: Proxy
) -> None:
    store = make(through(link), "slot", timeout_s=1.0)
    await store.install()
    # By itself, PostgreSQL would not end it while this test waits.
    store._session.sender_timeout_s = 3600.0
    await follow_until_the_power_fails(store, link, database)
    again = make(dsn, "slot")
    follower = Follower(again)
    task = asyncio.create_task(follower.follow(None))
    await until(lambda: again.status.failure_count >= 2)
    assert "gives no sign of life" in again.status.error
    assert "a replication slot of its own" not in again.status.error
    advice = re.search(r"SELECT pg_terminate_backend\((\d+)\)", again.status.error)
    assert advice is not None
    assert int(advice[1]) == await sender_of(database)
    await database.execute(advice[0])
    await until(lambda: again.status.state == "ok")
    await follower.load(EVERYTHING)
    await insert(database, "after")
    await follower.caught_up()
    assert follower.rows == await content(again)
    await again.close()
    await task


async def test_postgresql_frees_a_slot_soon_after_a_power_cut(dsn: str, database: Connection, link: Proxy) -> None:
    await (await installed(dsn, "slot")).close()
    await follow_until_the_power_fails(make(through(link), "slot", timeout_s=1.0), link, database)
    # Less than its own wal_sender_timeout, 60 s.
    async with asyncio.timeout(30):
        while await sender_of(database) is not None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def test_a_feed_whose_link_was_cut_ends_its_own_connection_of_before(
    dsn: str, database: Connection, link: Proxy
) -> None:
    """The link comes back for new connections; what was under way at the old one never gets through."""
    await (await installed(dsn, "slot")).close()
    store = make(through(link), "slot", timeout_s=2.0)
    # By itself, PostgreSQL would not end it while this test waits.
    store._session.sender_timeout_s = 3600.0
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "before")
        await follower.caught_up()
        before = await sender_of(database)
        link.forget()
        await insert(database, "meanwhile")
        await follower.until(lambda: b"p|meanwhile|0001" in follower.rows)
        assert await sender_of(database) != before
        assert follower.rows == await content(store)


async def test_a_server_that_lives_keeps_its_slot_and_the_other_is_told_whose_it_is(
    dsn: str, database: Connection
) -> None:
    first, second = await installed(dsn, "slot"), make(dsn, "slot")
    async with following(first) as follower:
        await insert(database, "ann")
        await follower.caught_up()
        sender = await sender_of(database)
        other = Follower(second)
        task = asyncio.create_task(other.follow(None))
        await until(lambda: second.status.failure_count >= 3)
        assert (
            "a server at this machine uses the replication slot pequod; give each server a replication slot of its own"
            in second.status.error
        )
        assert await sender_of(database) == sender
        assert first.status.failure_count == 0
        await second.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_role_that_is_not_shown_the_holder_is_told_both_ways_out(
    dsn: str, database: Connection, postgres: Postgres
) -> None:
    """PostgreSQL shows signs of life to roles with pg_read_all_stats: the healthy holder must not be called dead."""
    first = await installed(dsn, "slot")
    await database.execute("CREATE ROLE plain LOGIN REPLICATION")
    await database.execute("GRANT USAGE ON SCHEMA public TO plain")
    await database.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    second = make(dsn.replace("postgres@", "plain@", 1), "slot")
    async with following(first) as follower:
        await insert(database, "ann")
        await follower.caught_up()
        other = Follower(second)
        task = asyncio.create_task(other.follow(None))
        await until(lambda: second.status.failure_count >= 2)
        assert "does not show the role plain whether it lives" in second.status.error
        assert "pg_terminate_backend" not in second.status.error
        await database.execute("GRANT pg_read_all_stats TO plain")
        await until(lambda: "uses the replication slot pequod; give each server" in second.status.error)
        await second.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await database.execute("DROP OWNED BY plain")
    await database.execute("DROP ROLE plain")


async def test_a_start_says_what_holds_its_slot_while_it_waits(dsn: str, database: Connection, tmp_path: Path) -> None:
    first = await installed(dsn, "slot", POSTS)
    mapping = tmp_path / "twip.toml"
    mapping.write_text(POSTS_TEXT)
    async with following(first) as follower:
        await insert(database, "ann")
        await follower.caught_up()
        server = PequodServer(ServerConfig(listen="127.0.0.1:0", backing=dsn, backing_mapping=mapping))
        starting = asyncio.create_task(server.start())
        await until(lambda: "give each server a replication slot of its own" in server.waits_for)
        assert server.waits_for.count("give each server") == 1
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await server.close()
