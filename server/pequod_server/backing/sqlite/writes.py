"""What writes do in SQLite, whose connection is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from pequod.escapes import shown
from pequod_server.backing.errors import WriteRefusedError
from pequod_server.backing.mapping import Mapping as TableMapping
from pequod_server.backing.sql import Query
from pequod_server.backing.store import KeyRange

#: Returns the rows of ranges, by their keys.
Read = Callable[[sqlite3.Connection, Sequence[KeyRange]], Container[bytes]]


def ranges_of(keys: Iterable[bytes]) -> list[KeyRange]:
    """Return the ranges that hold one key each."""
    return [KeyRange(key, key + b"\0") for key in keys]


def carry_out(
    name: str,
    connection: sqlite3.Connection,
    plans: Iterable[Iterable[Query]],
    written: Mapping[bytes, TableMapping],
    read: Read,
) -> list[bool]:
    """Run the statements of changes; return for each whether its key was there, True for a put.

    Args:
        name: That of the database.
        written: The mappings of the keys that have a row afterwards.

    Raises:
        WriteRefusedError: A constraint is broken, or a mapping does not show a row: it does not meet its condition.
    """
    try:
        # Of a put, the last statement inserts the row if no other found it.
        found = [any(connection.execute(one.text, one.parameters).rowcount for one in plan) for plan in plans]
        there = read(connection, ranges_of(written))
    except sqlite3.IntegrityError as error:
        raise WriteRefusedError(name, str(error)) from error
    for key, mapping in written.items():
        if key not in there:
            reason = f"the row of key {shown(key)} would not meet the condition of {mapping.pattern}"
            raise WriteRefusedError(name, reason)
    return found
