"""The databases behind the homes of a cluster that loses servers: keys and values, a graph's subscriptions first."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import asyncpg
from pequod_server.backing import Mapping
from pequod_server.backing.mapping import GENERIC_TABLE
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.backing.sqlite.store import SqliteStore

from pequod_bench.backed_twip import SETTINGS
from pequod_bench.systems.postgres_cluster import started_cluster
from pequod_bench.workloads.graph import Graph
from pequod_bench.workloads.keys import FOLLOWS, subscription_key

#: No schema is needed: one table has all keys of these tables.
_OWNED: Final = "p,s"
_GENERIC: Final = (Mapping.generic(name.encode() for name in _OWNED.split(",")),)


def _subscriptions(graph: Graph) -> list[tuple[bytes, bytes]]:
    edges = zip(graph.users.tolist(), graph.posters.tolist(), strict=True)
    return [(subscription_key(*edge), FOLLOWS) for edge in edges]


@dataclass(frozen=True, slots=True)
class SqliteBehind:
    """An SQLite file."""

    graph: Graph
    name: str = "SQLite"

    def started(self, _stack: ExitStack, folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        """Make the database; return the flags of each home."""
        file = folder / "twip.db"

        async def install() -> None:
            store = SqliteStore(file, _GENERIC)
            await store.install()
            await store.close()

        asyncio.run(install())
        with closing(sqlite3.connect(file)) as connection:
            connection.executemany("INSERT INTO pequod_base VALUES (?, ?)", _subscriptions(self.graph))
            connection.commit()
        return dict.fromkeys(homes, _flags(f"sqlite:{file}"))


@dataclass(frozen=True, slots=True)
class PostgresBehind:
    """A PostgreSQL of its own, with a replication slot for each home."""

    graph: Graph
    name: str = "PostgreSQL"

    def started(self, stack: ExitStack, _folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        """Start it; return the flags of each home.

        Raises:
            ServerStartError: It is not installed, or does not start.
        """
        # Root starts it as another user, whom the folder then belongs to: one of its own.
        own = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-demo-", ignore_cleanup_errors=True)))
        server = stack.enter_context(started_cluster(own, SETTINGS))
        dsn = f"postgresql://bench@127.0.0.1:{server.port}/postgres"

        async def install() -> None:
            for home in homes:
                store = PostgresStore(dsn, _GENERIC, feed_name=home)
                await store.install()
                await store.close()
            connection = await asyncpg.connect(dsn)
            await connection.copy_records_to_table(GENERIC_TABLE, records=_subscriptions(self.graph))
            await connection.execute(f"ANALYZE {GENERIC_TABLE}; CHECKPOINT")
            await connection.close()

        asyncio.run(install())
        return {home: [*_flags(dsn), "--backing-feed-name", home] for home in homes}


def _flags(backing: str) -> list[str]:
    return ["--backing", backing, "--backing-tables", _OWNED, "--backing-mode", "write-through"]
