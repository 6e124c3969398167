"""What writes do in SQLite, whose connection is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from pequod.answers.transacted import Transacted
from pequod.engine.transacting import TransactionLimits, chosen, locked_keys, outcomes_of, ranges_needed, reader_of
from pequod.escapes import shown
from pequod.language.conditions import MET, Met, Unmet, holds
from pequod.language.deadlines import KEEP
from pequod.language.decimals import added
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import WriteRefusedError
from pequod_server.backing.mapping import Mapping as TableMapping
from pequod_server.backing.sql import Query
from pequod_server.backing.sqlite.dialect import plan_of
from pequod_server.backing.store import Addition, ConditionalChange, KeyRange, RowChange
from pequod_server.backing.timed import timed

#: Returns the rows of ranges, by their keys.
Read = Callable[[sqlite3.Connection, Sequence[KeyRange]], dict[bytes, bytes]]


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
        if key not in there and mapping.condition is not None:
            reason = f"the row of key {shown(key)} would not meet the condition of {mapping.pattern}"
            raise WriteRefusedError(name, reason)
    return found


def write_if(
    name: str, connection: sqlite3.Connection, change: ConditionalChange, mappings: Sequence[TableMapping], read: Read
) -> Met | Unmet:
    """Write a change if the present row meets its condition.

    Raises:
        PackError, WriteRefusedError: As `plan_of` and `carry_out`.
    """
    mapping, statements = plan_of(mappings, RowChange(change.key, change.value))
    present = read(connection, ranges_of([change.key])).get(change.key)
    if not holds(change.condition, present):
        return Unmet(present)
    carry_out(name, connection, [statements], {} if change.value is None else {change.key: mapping}, read)
    return MET


def add(
    name: str, connection: sqlite3.Connection, addition: Addition, mappings: Sequence[TableMapping], read: Read
) -> bytes:
    """Add to a row, and return what it has then.

    Raises:
        InvalidDeltaError, NotNumberError, SumTooLongError: As `added`.
        PackError, WriteRefusedError: As `plan_of` and `carry_out`.
    """
    key = addition.key
    plan_of(mappings, RowChange(key, None))
    total = added(key, read(connection, ranges_of([key])).get(key), addition.delta)
    mapping, statements = plan_of(mappings, RowChange(key, timed(total, KEEP)))
    carry_out(name, connection, [statements], {key: mapping}, read)
    # A column may have a form of its own for it.
    return read(connection, ranges_of([key])).get(key, total)


def transact(
    name: str,
    connection: sqlite3.Connection,
    transaction: Transaction,
    limits: TransactionLimits,
    mappings: Sequence[TableMapping],
    read: Read,
) -> Transacted:
    """Run a transaction of clients.

    Raises:
        LimitExceededError: What it gives is too much.
        NotNumberError, SumTooLongError: As `added`.
        PackError, WriteRefusedError: As `plan_of` and `carry_out`, also of the list that does not run.
    """
    for change in (*((key, None) for key in locked_keys(transaction)), *transaction.writes()):
        plan_of(mappings, RowChange(*change))
    held, commands = chosen(transaction, read(connection, ranges_of([one.key for one in transaction.compares])).get)
    rows = read(connection, [KeyRange(*one) for one in ranges_needed(commands)])
    outcomes, written = outcomes_of(commands, reader_of(rows), limits)
    ttls = commands.ttls()
    planned = {
        key: plan_of(mappings, RowChange(key, None if value is None else timed(value, ttls[key])))
        for key, value in written.items()
    }
    there = {key: mapping for key, (mapping, _) in planned.items() if written[key] is not None}
    carry_out(name, connection, [statements for _, statements in planned.values()], there, read)
    return Transacted(held, outcomes)
