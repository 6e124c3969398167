"""Which rows of a commit meet the condition of their mapping: the database is asked, in pieces, while they come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import asyncpg

from pequod_server.backing.mapping import Mapping
from pequod_server.backing.sql import quoted, quoted_table, table_parts

#: The rows of one statement: PostgreSQL holds up to a gigabyte, and joining rows of this size takes a millisecond.
PIECE_ROWS_MAX: Final = 1_000
PIECE_BYTES_MAX: Final = 2 << 20


class UnjudgedError(Exception):
    """The database cannot decide: the condition fails for one of the rows."""


class Judge:
    """Rows of one mapping that have a key only if they meet its condition.

    Args:
        fetch: Runs a statement.
    """

    __slots__ = ("_bytes", "_fetch", "_query", "_rows", "mapping")

    def __init__(self, mapping: Mapping, fetch: Callable[..., Awaitable[Sequence[asyncpg.Record]]]) -> None:
        assert mapping.condition is not None, "there is something to ask"
        self.mapping = mapping
        self._fetch = fetch
        table, alias = quoted_table(mapping.table), quoted(table_parts(mapping.table)[1])
        self._query = (
            f"SELECT coalesce(({mapping.condition}), false) "
            f"FROM ROWS FROM (json_populate_recordset(NULL::{table}, $1::text::json)) AS {alias}"
        )
        #: The value of each key, and its row as JSON.
        self._rows: dict[bytes, tuple[bytes, str]] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for one statement."""
        return len(self._rows) >= PIECE_ROWS_MAX or self._bytes >= PIECE_BYTES_MAX

    def add(self, key: bytes, value: bytes, row: str) -> None:
        """Add a row, in place of an earlier one of its key."""
        self._rows[key] = value, row
        self._bytes += len(row)

    def drop(self, key: bytes) -> None:
        """Remove the row of a key, if there is one."""
        self._rows.pop(key, None)

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._bytes = 0

    @property
    def keys(self) -> list[bytes]:
        """The keys of all rows."""
        return list(self._rows)

    async def judge(self) -> list[tuple[bytes, bytes | None]]:
        """Return each key with its value, or None where the row does not meet the condition.

        Raises:
            UnjudgedError: The condition fails for one of them.
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the condition needs.
        """
        if not self._rows:
            return []
        try:
            verdicts = await self._fetch(self._query, "[" + ",".join(row for _, row in self._rows.values()) + "]")
        except asyncpg.PostgresError as error:
            raise UnjudgedError(str(error)) from error
        return [
            (key, value if is_met else None)
            for (key, (value, _)), (is_met,) in zip(self._rows.items(), verdicts, strict=True)
        ]
