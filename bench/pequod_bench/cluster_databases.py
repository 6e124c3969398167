"""The databases behind the homes of a cluster that loses servers: tables of Twip with the subscriptions of a graph."""

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
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres import PostgresStore
from pequod_server.backing.sqlite import SqliteStore

from pequod_bench.backed_twip import MAPPING, SETTINGS
from pequod_bench.compare.postgres_cluster import started_cluster
from pequod_bench.graph import Graph

_TABLES: Final = """
CREATE TABLE p (poster bigint, "time" bigint, tweet text, PRIMARY KEY (poster, "time"));
CREATE TABLE s ("user" bigint, poster bigint, active text, PRIMARY KEY ("user", poster));
"""


@dataclass(frozen=True, slots=True)
class SqliteBehind:
    """An SQLite file."""

    graph: Graph
    name: str = "SQLite"

    def started(self, _stack: ExitStack, folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        """Make the database; return the flags of each home."""
        file = folder / "twip.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)
            rows = zip(self.graph.users.tolist(), self.graph.posters.tolist(), strict=True)
            connection.executemany("INSERT INTO s VALUES (?, ?, '1')", rows)
            connection.commit()

        async def install() -> None:
            store = SqliteStore(file, parse_mappings(MAPPING))
            await store.install()
            await store.close()

        asyncio.run(install())
        flags = _flags(folder, f"sqlite:{file}")
        return dict.fromkeys(homes, flags)


@dataclass(frozen=True, slots=True)
class PostgresBehind:
    """A PostgreSQL of its own, with a slot for each home."""

    graph: Graph
    name: str = "PostgreSQL"

    def started(self, stack: ExitStack, folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        """Start it; return the flags of each home.

        Raises:
            ServerStartError: It is not installed, or does not start.
        """
        # Root starts it as another user, whom the folder then belongs to: one of its own.
        own = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-demo-", ignore_cleanup_errors=True)))
        server = stack.enter_context(started_cluster(own, SETTINGS))
        dsn = f"postgresql://bench@127.0.0.1:{server.port}/postgres"

        async def install() -> None:
            connection = await asyncpg.connect(dsn)
            await connection.execute(_TABLES)
            edges = zip(self.graph.users.tolist(), self.graph.posters.tolist(), strict=True)
            await connection.copy_records_to_table("s", records=[(*edge, "1") for edge in edges])
            await connection.execute("ANALYZE s; ANALYZE p; CHECKPOINT")
            await connection.close()
            for home in homes:
                store = PostgresStore(dsn, parse_mappings(MAPPING), feed_name=home)
                await store.install()
                await store.close()

        asyncio.run(install())
        flags = _flags(folder, dsn)
        return {home: [*flags, "--backing-feed-name", home] for home in homes}


def _flags(folder: Path, backing: str) -> list[str]:
    mapping = folder / "twip.toml"
    mapping.write_text(MAPPING)
    return ["--backing", backing, "--backing-mapping", str(mapping), "--backing-mode", "write-through"]
