"""Commits that are larger than what the feed likes to hold, against a real server with room for them."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from pequod_server.backing import Backoff
from pequod_server.backing.postgres import PostgresStore

from tests.backing.conftest import Connection, Postgres, binaries, clear
from tests.backing.feed import following, until
from tests.backing.test_postgres import EVERYTHING, MAPPINGS, content


class RoomyPostgres(Postgres):
    """Keeps the log of the largest commits here."""

    SETTINGS = (
        *(setting for setting in Postgres.SETTINGS if "wal" not in setting),
        "wal_level=logical",
        "max_wal_size=4GB",
        "autovacuum=off",
    )


@pytest.fixture(scope="module")
def roomy() -> Iterator[RoomyPostgres]:
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed here: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
    with tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True) as directory:
        cluster = RoomyPostgres(programs, Path(directory))
        cluster.start()
        yield cluster
        cluster.stop(kill=True)


@pytest.fixture
async def dsn(roomy: RoomyPostgres) -> AsyncIterator[str]:
    dsn = roomy.dsn("postgres")
    await clear(dsn)
    yield dsn
    await clear(dsn)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    await connection.execute("""
        CREATE TABLE posts (
            poster text, at bigint, body text, hidden boolean DEFAULT false, PRIMARY KEY (poster, at)
        );
        CREATE TABLE subscriptions (
            "user" text, poster text, since timestamptz, score numeric, ok boolean, PRIMARY KEY ("user", poster)
        );
        CREATE TABLE unmapped (n int);
    """)
    yield connection
    await connection.close()


async def make(dsn: str, *, timeout_s: float = 10.0) -> PostgresStore:
    store = PostgresStore(dsn, MAPPINGS, timeout_s=timeout_s, backoff=Backoff(first_s=0.02, most_s=0.2))
    await store.install()
    return store


async def busy(database: Connection, rows: int) -> None:
    """Commit so many rows that no mapping reads: the sender decodes them, and has nothing to say of them."""
    await database.execute(f"COPY unmapped FROM PROGRAM 'seq {rows}'", timeout=60)


async def test_the_feed_is_not_fresh_while_it_misses_a_commit(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await follower.caught_up()
        for n in range(3):
            await busy(database, 500_000)
            await database.execute("INSERT INTO posts VALUES ('bob', $1, 'hi')", n)
            committed_s = time.time()
            key = f"p|bob|{n:04}".encode()
            # Nothing runs between the status and the row.
            while (store.status.fresh_s or 0.0) < committed_s:  # noqa: ASYNC110 - a status has no event to wait for
                await asyncio.sleep(0.001)
            assert key in follower.rows
        assert store.status.failure_count == 0


async def test_an_idle_feed_stays_fresh(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    async with following(store) as follower:
        await follower.caught_up()
        await until(lambda: store.status.fresh_s is not None)
        ages = []
        for n in range(300):
            if n == 150:
                # Of tables that are not mapped, the feed hears nothing.
                await busy(database, 10)
            ages.append(time.time() - (store.status.fresh_s or 0.0))
            await asyncio.sleep(0.01)
        assert max(ages) < 10.0
        assert store.status.lag is not None


async def test_a_sender_that_neither_works_nor_answers_is_given_up(dsn: str, database: Connection) -> None:
    store = await make(dsn, timeout_s=1.0)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await until(lambda: store.status.state == "ok")
        sender = await database.fetchval("SELECT active_pid FROM pg_replication_slots")
        os.kill(sender, signal.SIGSTOP)
        try:
            await until(lambda: "no sign of life" in store.status.error)
        finally:
            os.kill(sender, signal.SIGCONT)
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        await follower.until(lambda: b"p|bob|0001" in follower.rows)
        assert follower.reloads == []


async def test_a_sender_that_works_may_be_silent(dsn: str, database: Connection) -> None:
    store = await make(dsn, timeout_s=1.0)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await busy(database, 1_000_000)
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        await follower.until(lambda: b"p|bob|0001" in follower.rows)
        assert "no sign of life" not in store.status.error
        assert follower.rows == await content(store)
