"""Stores of a PostgreSQL for tests, in both ways of hearing of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from pequod_server.backing import Backoff, KeyRange, Mapping, parse_mappings
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.conftest import Connection, Mode

MAPPINGS = parse_mappings("""
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
where = "NOT hidden"

[[mapping]]
keys = "s|<user>|<poster>"
table = "public.subscriptions"
value = ["since", "score", "ok"]
""")
EVERYTHING = KeyRange(b"", None)


def make(dsn: str, mode: Mode, mappings: tuple[Mapping, ...] = MAPPINGS, timeout_s: float = 10.0) -> PostgresStore:
    backoff = Backoff(first_s=0.02, most_s=0.2)
    return PostgresStore(dsn, mappings, mode=mode, backoff=backoff, timeout_s=timeout_s)


async def installed(dsn: str, mode: Mode, mappings: tuple[Mapping, ...] = MAPPINGS) -> PostgresStore:
    store = make(dsn, mode, mappings)
    try:
        await store.install()
    except BaseException:
        # A connection that is left open is a warning, and the failure of whichever test runs when it is collected.
        await store.close()
        raise
    return store


async def content(store: PostgresStore) -> dict[bytes, bytes]:
    return dict((await store.load([EVERYTHING])).rows)


@asynccontextmanager
async def no_standby(database: Connection) -> AsyncIterator[None]:
    """Have commits wait for a standby that does not exist: they are logged, and no read sees them until the end."""
    await database.execute("SET synchronous_commit = local")
    await database.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await database.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        await database.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await database.execute("SELECT pg_reload_conf()")


async def _commits_wait(dsn: str) -> bool:
    """Tell whether commits wait for a standby yet: another process than the one that commits says so to all."""
    probe = await asyncpg.connect(dsn)
    try:
        await asyncio.wait_for(probe.execute("CREATE TEMP TABLE probe (); DROP TABLE probe"), 0.3)
    except TimeoutError:
        return True
    finally:
        probe.terminate()
    return False


async def commits_wait(dsn: str, writer: Connection) -> None:
    """Wait until commits of a connection wait for a standby."""
    async with asyncio.timeout(30):
        while await writer.fetchval("SHOW synchronous_standby_names") != "nobody":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        while not await _commits_wait(dsn):
            pass
