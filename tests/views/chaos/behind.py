"""A SQLite file behind the server that views follow, which keeps the base data when the server is killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from pequod_server.backing import SqliteStore, parse_mappings

_TABLES: Final = {
    "vote": ("author", "id", "voter"),
    "s": ("user", "poster"),
    "p": ("poster", "time"),
    "pair": ("side", "number"),
}


async def flags_of_sqlite(folder: Path) -> tuple[str, ...]:
    """Make the file; return the flags of a server that writes through to it."""
    patterns = {name: "|".join([name, *(f"<{slot}>" for slot in slots)]) for name, slots in _TABLES.items()}
    mapping = "".join(
        f'[[mapping]]\nkeys = "{pattern}"\ntable = "{name}"\nvalue = "body"\n' for name, pattern in patterns.items()
    )
    path, file = folder / "base.db", folder / "mapping.toml"
    file.write_text(mapping)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for name, slots in _TABLES.items():
            columns = ", ".join(f'"{slot}" TEXT NOT NULL' for slot in slots)
            keys = ", ".join(f'"{slot}"' for slot in slots)
            database.execute(f'CREATE TABLE "{name}" ({columns}, body TEXT, PRIMARY KEY ({keys}))')
    store = SqliteStore(path, parse_mappings(mapping))
    await store.install()
    await store.close()
    behind = ("--backing", f"sqlite:{path}", "--backing-mapping", str(file))
    return (*behind, "--backing-mode", "write-through")


def pairs_of_sqlite(folder: Path) -> list[tuple[str, str, str]]:
    """Return the pairs that the file has."""
    with closing(sqlite3.connect(folder / "base.db")) as database:
        return database.execute("SELECT side, number, body FROM pair ORDER BY side, number").fetchall()
