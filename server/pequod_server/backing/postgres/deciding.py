"""Writes that PostgreSQL decides: rows are locked, looked at and written, and a conflict has all of it tried again.

Of a transaction of clients:

    locks of the keys, before the snapshot    transactions of all servers that share a key go one after the other, also
                                              where the key has no row that could be locked
    rows of compares, writes and gets         locked in the order of their keys; that another writer has changed one
                                              since the snapshot is a conflict
    compares -> a list -> its reads           as of the snapshot
    writes                                    that a row comes that was not there is a conflict
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Mapping as AnyMapping
from hashlib import blake2b
from typing import Protocol

import asyncpg

from pequod.answers.transacted import Transacted
from pequod.engine.transacting import (
    TransactionLimits,
    chosen,
    outcomes_of,
    ranges_needed,
    reader_of,
)
from pequod.escapes import shown
from pequod.language.conditions import MET, Met, Unmet, holds
from pequod.language.deadlines import KEEP
from pequod.language.decimals import added
from pequod.language.transactions import Transaction
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.schema import Connection, Facts
from pequod_server.backing.postgres.writes import lock_of
from pequod_server.backing.store import Addition, ConditionalChange, KeyRange, RowChange
from pequod_server.backing.timed import timed

#: Returns the rows of ranges as the transaction of the connection sees them.
Rows = Callable[[Connection, Facts, Sequence[KeyRange]], Awaitable[dict[bytes, bytes]]]


class WriteRow(Protocol):
    """Writes a row; see `PostgresStore`."""

    async def __call__(
        self, connection: Connection, facts: Facts, mapping: Mapping, change: RowChange, /, *, is_absent: bool = False
    ) -> bool:
        """Write a row; with ``is_absent`` it is inserted, or the write fails."""
        ...


def lock_numbers(keys: Iterable[bytes]) -> list[int]:
    """Return the numbers of the locks of keys, in the order in which every transaction takes them."""
    return sorted({int.from_bytes(blake2b(key, digest_size=8).digest(), signed=True) for key in keys})


async def decide(
    connection: Connection,
    facts: Facts,
    transaction: Transaction,
    limits: TransactionLimits,
    mappings: AnyMapping[bytes, Mapping],
    rows_of: Rows,
    write: WriteRow,
) -> Transacted:
    """Run a transaction on a connection that is in a transaction, whose snapshot is taken here.

    Args:
        mappings: By the keys whose rows are locked, in their order.

    Raises:
        LimitExceededError: What it gives is too much.
        NotNumberError, SumTooLongError: As `added`.
        asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError: Another writer was faster.
    """
    there: set[bytes] = set()
    for key, mapping in mappings.items():
        if await _is_locked(connection, mapping, key):
            there.add(key)
    compared = {compare.key for compare in transaction.compares}
    present = await rows_of(connection, facts, [KeyRange(key, key + b"\0") for key in sorted(compared)])
    held, commands = chosen(transaction, present.get)
    rows = await rows_of(connection, facts, [KeyRange(*one) for one in ranges_needed(commands)])
    outcomes, written = outcomes_of(commands, reader_of(rows), limits)
    ttls = commands.ttls()
    for key, value in sorted(written.items()):
        if value is not None or key in there:
            change = RowChange(key, None if value is None else timed(value, ttls[key]))
            await write(connection, facts, mappings[key], change, is_absent=key not in there)
    return Transacted(held, outcomes)


async def decide_one(
    connection: Connection, facts: Facts, change: ConditionalChange, mapping: Mapping, rows_of: Rows, write: WriteRow
) -> Met | Unmet:
    """Write a change if its condition holds: a row that is there is locked, and one that is not must not come.

    Raises:
        asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError: Another writer was faster.
    """
    key = change.key
    present, is_locked = await _locked_value(connection, facts, mapping, key, rows_of)
    if not holds(change.condition, present):
        return Unmet(present)
    # If another writer inserts the row first, the insertion fails: then that row is looked at.
    await write(connection, facts, mapping, RowChange(key, change.value), is_absent=not is_locked)
    return MET


async def add_one(
    connection: Connection, facts: Facts, addition: Addition, mapping: Mapping, rows_of: Rows, write: WriteRow
) -> bytes:
    """Add to a row, and return what it has then: a row that is there is locked, and one that is not must not come.

    Raises:
        InvalidDeltaError, NotNumberError, SumTooLongError: As `added`.
        asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError: Another writer was faster.
    """
    key = addition.key
    present, is_locked = await _locked_value(connection, facts, mapping, key, rows_of)
    row = RowChange(key, timed(added(key, present, addition.delta), KEEP))
    await write(connection, facts, mapping, row, is_absent=not is_locked)
    # A column may have a form of its own for it, as `numeric(10, 2)`.
    return (await rows_of(connection, facts, [KeyRange(key, key + b"\0")])).get(key, row.value or b"")


async def _locked_value(
    connection: Connection, facts: Facts, mapping: Mapping, key: bytes, rows_of: Rows
) -> tuple[bytes | None, bool]:
    """Return the present value of a key, None without a row, and whether the row is locked until the transaction ends.

    Raises:
        asyncpg.SerializationError: Another writer has inserted the row.
    """
    is_locked = await _is_locked(connection, mapping, key)
    present = (await rows_of(connection, facts, [KeyRange(key, key + b"\0")])).get(key)
    if present is not None and not is_locked:
        # Another writer inserted it between the two, and it may change until it is locked: a conflict.
        raise asyncpg.SerializationError(f"the row of key {shown(key)} came while it was looked at")
    return present, is_locked


async def _is_locked(connection: Connection, mapping: Mapping, key: bytes) -> bool:
    """Lock the row of a key until the transaction ends; return whether there is one, which may be due."""
    lock = lock_of(mapping, key)
    return not (await connection.execute(lock.text, *lock.parameters)).endswith(" 0")
