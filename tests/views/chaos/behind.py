"""Databases behind the server that views follow, which keep the base data when the server is killed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import asyncpg
from pequod_server.backing import SqliteStore, parse_mappings
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.conftest import Postgres

_TABLES: Final = {
    "vote": ("author", "id", "voter"),
    "s": ("user", "poster"),
    "p": ("poster", "time"),
    "pair": ("side", "number"),
}
_PATTERNS: Final = {name: "|".join([name, *(f"<{slot}>" for slot in slots)]) for name, slots in _TABLES.items()}
_MAPPING: Final = "".join(
    f'[[mapping]]\nkeys = "{pattern}"\ntable = "{name}"\nvalue = "body"\n' for name, pattern in _PATTERNS.items()
)
_PAIRS: Final = "SELECT side, number, body FROM pair ORDER BY side, number"

Pair: TypeAlias = tuple[str, str, str]


class Behind(Protocol):
    """A database that a server writes through to."""

    async def install(self, folder: Path) -> tuple[str, ...]:
        """Make its tables; return the flags of the server."""
        ...

    async def pairs(self) -> list[Pair]:
        """Return the pairs that it has."""
        ...

    async def restart(self) -> bool:
        """Kill it, and start it again; return whether that is possible."""
        ...


class SqliteBehind:
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def install(self, folder: Path) -> tuple[str, ...]:
        with closing(sqlite3.connect(self._path)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            for statement in _statements():
                database.execute(statement)
        store = SqliteStore(self._path, parse_mappings(_MAPPING))
        await store.install()
        await store.close()
        return _flags(f"sqlite:{self._path}", folder)

    async def pairs(self) -> list[Pair]:
        with closing(sqlite3.connect(self._path)) as database:
            return database.execute(_PAIRS).fetchall()

    async def restart(self) -> bool:
        return False


class PostgresBehind:
    """A PostgreSQL of its own; changes come to the server from a slot."""

    def __init__(self, cluster: Postgres) -> None:
        self._cluster = cluster
        self._dsn = cluster.dsn("postgres")

    async def install(self, folder: Path) -> tuple[str, ...]:
        connection = await asyncpg.connect(self._dsn)
        for statement in _statements():
            await connection.execute(statement)
        await connection.close()
        store = PostgresStore(self._dsn, parse_mappings(_MAPPING), mode="slot")
        await store.install()
        await store.close()
        return (*_flags(self._dsn, folder), "--backing-feed", "slot")

    async def pairs(self) -> list[Pair]:
        connection = await asyncpg.connect(self._dsn)
        try:
            return [(side, number, body) for side, number, body in await connection.fetch(_PAIRS)]
        finally:
            await connection.close()

    async def restart(self) -> bool:
        await asyncio.to_thread(self._cluster.stop, kill=True)
        await asyncio.to_thread(self._cluster.start)
        return True


def _statements() -> list[str]:
    made = []
    for name, slots in _TABLES.items():
        columns = ", ".join(f'"{slot}" TEXT NOT NULL' for slot in slots)
        keys = ", ".join(f'"{slot}"' for slot in slots)
        made.append(f'CREATE TABLE "{name}" ({columns}, body TEXT, PRIMARY KEY ({keys}))')
    return made


def _flags(backing: str, folder: Path) -> tuple[str, ...]:
    file = folder / "mapping.toml"
    file.write_text(_MAPPING)
    return ("--backing", backing, "--backing-mapping", str(file), "--backing-mode", "write-through")
