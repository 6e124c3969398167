"""What writes do in SQLite, whose connection is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence

from pequod.escapes import shown
from pequod_server.backing.errors import WriteRefusedError
from pequod_server.backing.mapping import Mapping as TableMapping
from pequod_server.backing.sql import Query
from pequod_server.backing.store import KeyRange


def carry_out(connection: sqlite3.Connection, statements: Sequence[Query]) -> bool:
    """Run the statements of one change; return whether its key was there; True for a put."""
    # Of a put, the last statement inserts the row if no other found it.
    return any(connection.execute(one.text, one.parameters).rowcount for one in statements)


def ranges_of(keys: Iterable[bytes]) -> list[KeyRange]:
    """Return the ranges that hold one key each."""
    return [KeyRange(key, key + b"\0") for key in keys]


def check_written(name: str, written: Mapping[bytes, TableMapping], there: Container[bytes]) -> None:
    """Pass if the rows of written keys are there.

    Args:
        name: That of the database.

    Raises:
        WriteRefusedError: A mapping does not show a row: it does not meet its condition.
    """
    for key, mapping in written.items():
        if key not in there:
            reason = f"the row of key {shown(key)} would not meet the condition of {mapping.pattern}"
            raise WriteRefusedError(name, reason)
