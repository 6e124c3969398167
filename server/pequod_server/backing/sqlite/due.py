"""Deadlines in SQLite: the column of the generic table, and the deletion of rows that are due."""

from __future__ import annotations

import sqlite3

from pequod_server.backing.deadlines import timed_of
from pequod_server.backing.mapping import GENERIC_EXPIRES, GENERIC_TABLE, Mapping
from pequod_server.backing.sql import quoted
from pequod_server.backing.sqlite.connection import SqliteConnection, transaction
from pequod_server.backing.sqlite.dialect import quoted_name
from pequod_server.backing.sqlite.schema import generic
from pequod_server.backing.timed import now_ms


class SqliteDeadlines:
    """The part of `SqliteStore` that is about deadlines; see `KeepsDeadlines`."""

    mappings: tuple[Mapping, ...]
    _loads: SqliteConnection
    _writes: SqliteConnection

    async def migrate(self) -> list[str]:
        """Give a generic table of an earlier version its column of deadlines; return the statements that did it."""
        if all(mapping.table != GENERIC_TABLE for mapping in self.mappings):
            return []

        def migrate(connection: sqlite3.Connection) -> list[str]:
            with transaction(connection, "IMMEDIATE"):
                there = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({GENERIC_TABLE})")]
                if not there or GENERIC_EXPIRES in there:
                    return []
                statements = [*generic(connection)][1:]
                for statement in statements:
                    connection.execute(statement)
                return statements

        return await self._writes.run(migrate)

    async def remove_due(self, rows_max: int) -> int:
        """Delete rows that are due, the earliest first; a file has one writer at a time."""
        timed = timed_of(self.mappings)

        def is_any_due(connection: sqlite3.Connection) -> bool:
            return any(
                connection.execute(
                    f"SELECT 1 FROM {quoted_name(one)} WHERE {quoted(one.expires or '')} <= ? LIMIT 1", (now_ms(),)
                ).fetchone()
                for one in timed
            )

        def remove(connection: sqlite3.Connection) -> int:
            count = 0
            with transaction(connection, "IMMEDIATE"):
                for mapping in timed:
                    count += connection.execute(_removal_of(mapping), (now_ms(), rows_max - count)).rowcount
            return count

        # Who only looks keeps no writer waiting.
        if not timed or not await self._loads.run(is_any_due):
            return 0
        return await self._writes.run(remove)


def _removal_of(mapping: Mapping) -> str:
    table, column = quoted_name(mapping), quoted(mapping.expires or "")
    slots = ", ".join(quoted(slot.name) for slot in mapping.slots)
    where = f"{column} <= ?" + (f" AND ({mapping.condition})" if mapping.condition else "")
    found = f"SELECT {slots} FROM {table} WHERE {where} ORDER BY {column} LIMIT ?"
    return f"DELETE FROM {table} WHERE ({slots}) IN ({found})"
