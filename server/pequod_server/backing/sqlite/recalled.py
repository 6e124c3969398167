"""Writes with request ids: a table keeps the ids with their outcomes, written in the transaction of the write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from pequod_server.backing.sqlite.schema import REQUESTS
from pequod_server.once.outcomes import Once

T = TypeVar("T")


def once(connection: sqlite3.Connection, write: Once[T] | None, do: Callable[[], T], keep_s: float) -> T:
    """Do a write on a connection that is in a transaction, unless it came before; return its outcome.

    Args:
        keep_s: How long an id is kept: up to two older ones are removed.

    Raises:
        BadRequestError: It has the id of another write.
        SchemaError: There is no such table.
    """
    if write is None or not write.request_id:
        return do()
    found = connection.execute(f"SELECT outcome FROM {REQUESTS} WHERE id = ?", (write.request_id,)).fetchone()
    if found is not None:
        return write.outcome(found[0])
    outcome = do()
    now_s = "CAST(strftime('%s', 'now') AS INTEGER)"
    old = f"SELECT id FROM {REQUESTS} WHERE at_s < {now_s} - ? ORDER BY at_s LIMIT 2"
    connection.execute(f"DELETE FROM {REQUESTS} WHERE id IN ({old})", (keep_s,))
    insert = f"INSERT INTO {REQUESTS} (id, at_s, outcome) VALUES (?, {now_s}, ?)"
    connection.execute(insert, (write.request_id, write.kept(outcome)))
    return outcome
