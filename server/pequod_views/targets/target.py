"""What views need of a database: transactions, statements, and three ways to write rows in sets.

Everything else (parts, leases, positions) is SQL that all databases understand, in ledger.py; what differs between
their words is in a `TargetDialect`. A further database needs these two classes and no more; sql.py has what
those that speak SQL share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, TypeAlias
from uuid import UUID

from pequod_views.definition import DurableView, TableRow
from pequod_views.kinds import Cell, CellKind
from pequod_views.parts import Place, ViewPart
from pequod_views.targets.sums import RangeSum

#: What becomes of a database that is not there, where a database is a file.
Missing: TypeAlias = Literal["made", "refused"]
#: How often those look who wait for a transaction of another process, where nobody tells them.
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class TargetDialect:
    """The words in which databases differ."""

    #: What stands before the names of the tables beside the views: a schema, or the beginning of a name.
    prefix: str
    #: The present moment by the database's clock, in seconds, so that the clocks of managers do not matter.
    now_s: str
    #: The types of keys, of seconds, of large numbers, and of names that are keys.
    bytes_type: str
    seconds_type: str
    number_type: str
    name_type: str
    #: What CAST calls the types of keys and of large numbers.
    bytes_cast: str
    number_cast: str
    #: Behind the columns of a table that is made.
    table_options: str
    #: Behind a SELECT: lock the rows, and leave out those that another transaction has locked.
    skip_locked: str
    #: Behind a SELECT: lock the rows, and wait for those that another transaction has locked.
    for_update: str
    #: A statement that locks tables for this transaction alone, in the order in which they stand in for `{tables}`.
    lock_tables: str
    column_type: Callable[[CellKind], str]
    #: Behind an INSERT into a table without other unique columns: where a row has that key, set these columns to the
    #: values that were to be inserted.
    on_conflict: Callable[[str, Sequence[str]], str]
    #: Returns a cell as the database gives it back.
    stored: Callable[[Cell], object]
    #: A statement by which a transaction that moves parts tells those who listen; empty: they look by themselves.
    tell_moved: str
    #: Returns what computes the digest of a row as `sum_of` does; None: sums of the view cannot be compared.
    digest: Callable[[DurableView], Callable[[TableRow], int] | None]
    #: The sum of the digests of a view's rows, as an expression.
    digests_sum: Callable[[DurableView], str]
    #: Statements that make what the tables of the ledger and the functions for readers need, before and after them.
    before: tuple[str, ...]
    after: tuple[str, ...]
    #: Statements that remove these again, once the tables of the ledger are gone.
    removal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """An UPDATE that tells which rows it has changed."""

    table: str
    sets: str
    where: str
    #: Columns that are told of each row; it changes none of them.
    told: str

    @property
    def returning(self) -> str:
        """The statement in databases that have UPDATE ... RETURNING."""
        return f"UPDATE {self.table} SET {self.sets} WHERE {self.where} RETURNING {self.told}"


def as_text(cell: Cell, between: str) -> bytes | str | int | float | None:
    """Return a cell with a text for each number with digits of its own, moment and UUID, so that nothing is rounded.

    Moments have one width, so that the texts sort as they do.

    Args:
        between: Stands between the date and the time.
    """
    match cell:
        case Decimal():
            return format(cell, "f")
        case datetime():
            return cell.replace(tzinfo=None).isoformat(between, "microseconds") + "Z"
        case UUID():
            return str(cell)
        case _:
            return cell


@dataclass(frozen=True, slots=True)
class PartChunk:
    """A part's position, and rows of it."""

    server_id: str
    #: The rows have all that the part had at the first of these revisions, and nothing that came after the second. In
    #: a database that shows both at one moment they are the same.
    revision: int
    last_revision: int
    #: By key, each with its cells as the database gives them back.
    rows: dict[bytes, tuple[Any, ...]]


class TargetTransaction(Protocol):
    """One transaction: all of it or nothing.

    In MariaDB a statement that makes, alters or drops a table commits what was before it. So tables are made in an
    order in which each beginning of the work can be followed by all of it again.
    """

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement with arguments $1, $2, ... and return its rows.

        Raises:
            TargetAwayError, TargetRefusedError: As everything here.
        """
        ...

    async def fetch_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of these rows of arguments, in order, and return the rows of all, in one go."""
        ...

    async def change_each(self, change: RowChange, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Make a change with each of these rows of arguments, in order; return what is told of the changed rows."""
        ...

    async def take_turn(self) -> None:
        """Wait for other transactions that take a turn: they install, uninstall or split. It ends with this one.

        Requires:
            The transaction has done nothing yet.
        """
        ...

    async def lock_parts(self, views: Sequence[str]) -> None:
        """Have all parts of views for this transaction alone, before anything of the views is changed."""
        ...

    async def lock_part(self, place: Place, last: bytes | None) -> tuple[str, int] | None:
        """Lock a part that ends there; return its server and revision, None if there is no such part."""
        ...

    async def upsert(self, view: DurableView, rows: Sequence[TableRow]) -> None:
        """Write rows by their keys; those that are equal are left alone."""
        ...

    async def delete(self, view: DurableView, keys: Sequence[bytes]) -> None:
        """Delete the rows of keys."""
        ...

    async def delete_others(self, view: DurableView, first: bytes, last: bytes | None, keys: Sequence[bytes]) -> None:
        """Delete the rows of ``[first, last)`` but those of ``keys``."""
        ...

    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types, in lower case; nothing if there is no such table."""
        ...

    async def has_table(self, view: DurableView) -> bool:
        """Return whether the table of a view is there."""
        ...

    async def table_problems(self, view: DurableView) -> list[str]:
        """Return what is wrong with the table of a view; nothing if all is well."""
        ...

    async def make_table(self, view: DurableView) -> None:
        """Make the table of a view."""
        ...

    async def mend_table(self, view: DurableView) -> None:
        """Make the table of a view if there is none, and the columns that it lacks, without their cells."""
        ...

    async def drop_table(self, table: str) -> None:
        """Drop the table of a view, if it is there."""
        ...

    async def keys_outside(self, view: DurableView) -> list[bytes]:
        """Return the keys of rows outside of the range of a view, which belong to no part."""
        ...

    async def chunk(
        self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None, count: int
    ) -> PartChunk | None:
        """Return a part's position and its first rows of ``[start, stop)``; None if there is no such part any more."""
        ...

    async def sum_of(self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None) -> RangeSum | None:
        """Return a part's position and the sum of its rows of ``[start, stop)``; None if there is no such part.

        Requires:
            The dialect has digests of the view's rows.
        """
        ...


class PartNews(Protocol):
    """Tells of transactions that move parts."""

    async def wait(self, wait_s: float) -> None:
        """Return after the next one, or a while later without one: after ``wait_s`` at the latest."""
        ...


class LookAgain:
    """Has its reader look again and again: such a database tells nobody what other processes write."""

    async def wait(self, wait_s: float) -> None:
        """Wait a moment."""
        await asyncio.sleep(min(wait_s, _LOOK_S))


class Target(Protocol):
    """A database that holds views."""

    #: Without its password, for messages.
    name: str
    dialect: TargetDialect

    def transaction(self) -> AbstractAsyncContextManager[TargetTransaction]:
        """Begin a transaction; it is committed at the end of the context, and rolled back at an exception.

        Raises:
            TargetAwayError: The database does not answer; whether the transaction was committed is not known.
            TargetRefusedError: It refuses a statement; nothing was written.
        """
        ...

    def listening(self) -> AbstractAsyncContextManager[PartNews]:
        """Listen for transactions that move parts, from now on.

        Raises:
            TargetAwayError: The database does not answer.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def on_conflict(key: str, names: Sequence[str]) -> str:
    """Return what stands behind an INSERT in PostgreSQL and SQLite, see `TargetDialect.on_conflict`."""
    return f" ON CONFLICT ({key}) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}"


def quoted(name: str) -> str:
    """Return a name, or a schema and a name, as SQL has it.

    >>> print(quoted("public.votes"))
    "public"."votes"
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
