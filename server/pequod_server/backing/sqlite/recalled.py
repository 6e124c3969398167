"""Writes with request ids: a table keeps the ids with their outcomes, written in the transaction of the write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pequod_server.backing.sqlite.connection import SqliteConnection, transaction
from pequod_server.backing.sqlite.schema import REQUESTS
from pequod_server.once.outcomes import Once, with_head
from pequod_server.once.parts import PAGE_ROWS, IdPage, IdPart, one_by_one

T = TypeVar("T")
_NOW_S: Final = "CAST(strftime('%s', 'now') AS INTEGER)"
_KNOWN: Final = f"SELECT outcome FROM {REQUESTS} WHERE id = ?"
_OLD: Final = f"SELECT id FROM {REQUESTS} WHERE at_s < {_NOW_S} - ? ORDER BY at_s LIMIT 2"
_PAGE: Final = f"SELECT id, outcome, {_NOW_S} - at_s FROM {REQUESTS} WHERE id > ? ORDER BY id LIMIT {PAGE_ROWS}"
_KEEP: Final = f"INSERT OR REPLACE INTO {REQUESTS} (id, at_s, outcome) VALUES (?, {_NOW_S} - ?, ?)"


class SqliteIds:
    """The table of the ids.

    Args:
        loads, writes: Connections.
    """

    def __init__(self, loads: SqliteConnection, writes: SqliteConnection) -> None:
        self._loads = loads
        self._writes = writes
        #: How long an id is kept.
        self.keep_s = 600.0

    def once(self, connection: sqlite3.Connection, write: Once[T] | None, do: Callable[[], T]) -> T:
        """Do a write on a connection that is in a transaction, unless it came before; return its outcome.

        Up to two ids that are too old are removed.

        Raises:
            BadRequestError: It has the id of another write.
            SchemaError: There is no such table.
        """
        if write is None or not write.request_id:
            return do()
        found = connection.execute(_KNOWN, (write.request_id,)).fetchone()
        if found is not None:
            return write.outcome(found[0])
        outcome = do()
        connection.execute(f"DELETE FROM {REQUESTS} WHERE id IN ({_OLD})", (self.keep_s,))
        connection.execute(_KEEP, (write.request_id, 0, write.kept(outcome)))
        return outcome

    async def page(self, since: bytes) -> IdPage:
        """Return a page of the ids, in their order; after the last one all come again, which costs 1 µs for each.

        The rows have no numbers, and the clock that they go by may be set back: what is new cannot be told from others.
        """

        def read(connection: sqlite3.Connection) -> IdPage:
            rows = connection.execute(_PAGE, (since,)).fetchall()
            parts = [IdPart(one, with_head(one, outcome), max(0, age_s) * 1000) for one, outcome, age_s in rows]
            is_last = len(rows) < PAGE_ROWS
            return IdPage(parts, b"" if is_last else rows[-1][0], not is_last)

        return await self._loads.run(read)

    async def take(self, parts: Sequence[IdPart]) -> None:
        """Remember ids of another home, but for those that are too old."""
        rows = [(one, age_ms // 1000, outcome) for one, age_ms, outcome in one_by_one(parts, self.keep_s)]

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                connection.executemany(_KEEP, rows)

        await self._writes.run(write)
