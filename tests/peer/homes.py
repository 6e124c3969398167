"""Homes and computes as real servers in this event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import BackingStore, FakeStore, SqliteStore, parse_mappings
from pequod_server.backing.health import Backoff
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.compute.store import PequodStore

from pequod.client import AsyncClient
from pequod.freshness import Latest

MAPPING = """
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
value = "body"

[[mapping]]
keys = "s|<user>|<poster>"
table = "subs"
value = "since"
"""
TABLES = """
CREATE TABLE posts (poster TEXT NOT NULL, time TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (poster, time));
CREATE TABLE subs ("user" TEXT NOT NULL, poster TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY ("user", poster));
"""
TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
OWNED = (b"p", b"s")
#: The machine may be busy.
#: A machine that is busy takes its time.
LATEST = Latest(wait_s=50.0)


class Running:
    """A server with a client of its own."""

    def __init__(self, server: PequodServer, port: int, client: AsyncClient, store: BackingStore | None) -> None:
        self.server = server
        self.port = port
        self.client = client
        self.store = store

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def running(store: BackingStore | None = None, **settings: Any) -> AsyncIterator[Running]:
    """Run a server; its engine's invariants hold at the end."""
    config = ServerConfig(**{"listen": "127.0.0.1:0", "drain_s": 0.2, "memory_limit": "none", **settings})
    server = PequodServer(config, store=store)
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", timeout_s=60) as client:
            yield Running(server, port, client, store)
    finally:
        await server.stop()
        server.engine._check()
        server.peers.origin.relay._check()


@asynccontextmanager
async def computing(
    homes: Sequence[str], *, own_id: str = "", transport: str = "auto", **settings: Any
) -> AsyncIterator[Running]:
    """Run a server that computes timelines from homes, over links of a transport."""
    backoff, connect = Backoff(first_s=0.01, most_s=0.1), PeerCredentials(transport=transport).connect
    store = PequodStore(homes, OWNED, connect=connect, silence_s=2.0, backoff=backoff, own_id=own_id)
    async with running(store, **{"joins": TIMELINE, "backing_mode": "write-through", **settings}) as compute:
        yield compute


def fake() -> FakeStore:
    """Return a database that does what the test says."""
    return FakeStore(parse_mappings(MAPPING))


async def sqlite(path: Path) -> None:
    """Make a database with posts and subscriptions, and what feeds need."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(TABLES)
    connection.close()
    store = SqliteStore(path, parse_mappings(MAPPING))
    await store.install()
    await store.close()


def on_sqlite(path: Path) -> SqliteStore:
    """Return a store over the database."""
    return SqliteStore(path, parse_mappings(MAPPING))


async def rows_of(running: Running, prefix: str, **freshness: Any) -> list[tuple[bytes, bytes]]:
    """Return the rows of a range."""
    return await running.client.scan(prefix=prefix, **freshness)


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds; the test's own limit of time ends it."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.002)


def expected(rows: Iterable[tuple[bytes, bytes]], user: bytes) -> list[tuple[bytes, bytes]]:
    """Return a user's timeline, found without an engine."""
    found = dict(rows)
    posters = [key.split(b"|")[2] for key in found if key.startswith(b"s|%b|" % user)]
    posts = [(key.split(b"|"), value) for key, value in found.items() if key.startswith(b"p|")]
    timeline = [(b"t|%b|%b|%b" % (user, parts[2], parts[1]), value) for parts, value in posts if parts[1] in posters]
    return sorted(timeline)
