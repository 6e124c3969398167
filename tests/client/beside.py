"""Servers beside one database, in this event loop; those of SQLite look for changes as seldom as a test wants."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import BackingStore
from pequod_server.backing.mapping import parse_mappings
from pequod_server.backing.postgres.schema import Mode
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.backing.sqlite.store import SqliteStore

from pequod.freshness import Token

MAPPINGS = parse_mappings("[[mapping]]\nkeys = 'vote|<author>|<voter>'\ntable = 'vote'\nvalue = 'weight'")
KARMA = "karma|<author> = count vote|<author>|<voter>"


def ahead(token: Token) -> Token:
    """Return a token of a state that has not come."""
    ((mark, position),) = token.positions.items()
    return Token({mark: position + 1000})


def make_database(file: Path) -> sqlite3.Connection:
    """Make the database, and return a connection for a program that writes around the cache."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE vote (author TEXT, voter TEXT, weight TEXT, PRIMARY KEY (author, voter))")
    connection.commit()
    return connection


@asynccontextmanager
async def served(file: Path, poll_s: float, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Run a server that writes through, and yield its target."""
    store = SqliteStore(file, MAPPINGS, poll_s=poll_s)
    await store.install()
    async with _serving(store, listen) as target:
        yield target


@asynccontextmanager
async def _serving(store: BackingStore, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = PequodServer(ServerConfig(listen=listen, joins=KARMA, backing_mode="write-through"), store=store)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop()


@asynccontextmanager
async def beside_one_database(file: Path, polls_s: Sequence[float]) -> AsyncIterator[list[str]]:
    """Run a server for each pause between looks; yield their targets."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(served(file, poll_s)) for poll_s in polls_s]


@asynccontextmanager
async def beside_postgres(dsn: str, mode: Mode) -> AsyncIterator[list[str]]:
    """Run two servers beside a PostgreSQL, each with a feed of its own; yield their targets."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE vote (author text, voter text, weight text, PRIMARY KEY (author, voter))")
    await connection.close()
    # A slot has one reader; triggers tell all who listen.
    names = ("pequod", "pequod_second" if mode == "slot" else "pequod")
    stores = [PostgresStore(dsn, MAPPINGS, mode=mode, feed_name=name) for name in names]
    for store in stores:
        await store.install()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_serving(store)) for store in stores]
