"""Cells with timestamps, and what a store of records with many masters offers.

A record is found by table and key, and has cells, each with a value and a timestamp. Of two values of a cell the one
with the larger timestamp counts, wherever and in whatever order they arrive; so all replicas come to agree. NULL is a
value like others (a tombstone).

>>> newest(StoredCell("open", 1), StoredCell(None, 2))
StoredCell(value=None, timestamp=2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pequod.errors import PequodError

#: The timestamp of a cell that was never written, below all others.
NEVER: Final = -1


class StoredCell(NamedTuple):
    """A value and when it was written, by the clock of the writer."""

    value: str | None
    #: Unique for each write of a cell; at a tie the larger value counts.
    timestamp: int


EMPTY: Final = StoredCell(None, NEVER)


class StoredColumn(NamedTuple):
    """A column of a record; a record of a view has columns for each base record with its view key."""

    name: str
    #: In views the key of the base record. In base tables it is empty, or the view of a mark, see `rows.done_column`.
    base_key: str = ""


Cells: TypeAlias = Mapping[StoredColumn, StoredCell]


def newest(one: StoredCell, other: StoredCell) -> StoredCell:
    """Return the cell that counts."""
    if one.timestamp != other.timestamp:
        return one if one.timestamp > other.timestamp else other
    return max(one, other, key=lambda cell: (cell.value is not None, cell.value or ""))


def merge(into: dict[StoredColumn, StoredCell], cells: Cells) -> None:
    """Take cells into a record."""
    for column, cell in cells.items():
        there = into.get(column)
        if there is not cell:
            into[column] = cell if there is None else newest(there, cell)


class QuorumError(PequodError):
    """Fewer replicas answered than the call asked for; a write may be at some of them, and may spread.

    Args:
        reasons: Why others did not answer, each with the name of its replica.
    """

    def __init__(self, wanted: int, answered: int, reasons: Sequence[str] = ()) -> None:
        why = f": {'; '.join(reasons)}" if reasons else ""
        super().__init__(f"{answered} replicas answered, and {wanted} have to{why}")
        self.wanted = wanted
        self.answered = answered
        self.reasons = tuple(reasons)


class KeyPage(NamedTuple):
    """Keys of a table, in the order of the store."""

    keys: Sequence[str]
    #: How many replicas did not answer: what they alone have is not there.
    replicas_away: int


class StatementRefusedError(PequodError):
    """A store does not take a request, such as a write that is too large for it; nothing was done."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store}: {reason}")
        self.store = store
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Get:
    """Read cells of a record from ``quorum`` replicas; None: all of them. The reply has the newest of each."""

    table: str
    key: str
    columns: tuple[StoredColumn, ...] | None
    quorum: int


@dataclass(frozen=True, slots=True)
class Put:
    """Write cells of a record at all replicas, and wait for ``quorum`` of them."""

    table: str
    key: str
    cells: tuple[tuple[StoredColumn, StoredCell], ...]
    quorum: int


@dataclass(frozen=True, slots=True)
class PutAll:
    """Write cells of several records as one request; each is at ``quorum`` replicas in the end.

    The records may come to a replica one by one, in any order.
    """

    puts: tuple[Put, ...]
    quorum: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove cells of a record where they are not newer than these, at ``quorum`` replicas."""

    table: str
    key: str
    cells: tuple[tuple[StoredColumn, StoredCell], ...]
    quorum: int


class RecordStore(Protocol):
    """A store without a master: every replica takes reads and writes."""

    #: N.
    replica_count: int

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        """Return the newest of each cell among ``quorum`` replicas; cells that were never written are left out.

        Raises:
            QuorumError: Too few replicas answer.
        """
        ...

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Write cells at all replicas, and return once ``quorum`` of them have them; the others take them later.

        Raises:
            QuorumError: Too few replicas answer; some may have the cells.
        """
        ...

    async def keys(self, table: str, after: str | None, count: int) -> KeyPage:
        """Return the first keys of a table that come after ``after``, in the store's order; None is before all keys.

        They are those of all replicas that answer, each of which is waited for until it counts as away.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
        """
        ...

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        """Set a register to ``new`` if it has ``old``, at once as all others see it, and return what it has then.

        Registers are no cells: each is a text alone. None is the value of a register that was never set.

        Raises:
            QuorumError: Less than a majority of the replicas answers; the register may have the new value, or get it.
        """
        ...


@runtime_checkable
class ForgettingStore(Protocol):
    """A store that can remove cells without a trace; in another one tombstones of collected rows stay."""

    async def forget(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Remove cells as if they had never been written, where a replica has none that is newer.

        Raises:
            QuorumError: Too few replicas answer; some may have removed them.
        """
        ...


@runtime_checkable
class JoiningStore(Protocol):
    """A store that takes cells of several records as one request; another one gets a request for each."""

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        """Write cells at all replicas, and return once ``quorum`` of them have those of each record.

        Raises:
            QuorumError: Too few replicas answer; some may have some of the cells.
        """
        ...


@runtime_checkable
class LimitedStore(Protocol):
    """A store that does not take all keys, such as long ones; it is asked before anything is written."""

    def check_record(self, table: str, key: str) -> None:
        """Pass if a record can have a key.

        Raises:
            NameRefusedError: It cannot.
        """
        ...
