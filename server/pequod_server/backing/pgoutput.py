"""The messages of PostgreSQL's logical decoding plugin `pgoutput`, protocol version 1.

    Begin, Relation, Insert | Update | Delete | Truncate ..., Commit

Source:
    PostgreSQL 15, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final


class _Unchanged:
    """Stands for a large value that an update left as it was, and that is not sent again."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
#: A column as text, NULL, or not sent.
Field = str | None | _Unchanged


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that committed; its changes follow."""

    transaction: int
    #: Where its commit is: all that was committed before has been sent.
    position: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction, and the position after it."""

    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """What a table looks like, before its first change and after it was altered."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    #: Whether old rows have each column.
    is_identity: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row: an insert has no old one, a delete no new one, and an update an old one if its identity changed."""

    oid: int
    old: tuple[Field, ...] | None
    new: tuple[Field, ...] | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """These tables were emptied."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Something that says nothing about rows."""


Message = Begin | Commit | Relation | RowChange | Truncate | Other


def parse_message(data: bytes) -> Message:
    """Return the message in ``data``."""
    reader = _Reader(data)
    match reader.byte():
        case b"B":
            position, _, transaction = reader.take(">qqI")
            return Begin(transaction, position)
        case b"C":
            _, _, end, _ = reader.take(">bqqq")
            return Commit(end)
        case b"R":
            return _relation(reader)
        case b"I":
            (oid,) = reader.take(">I")
            reader.byte()
            return RowChange(oid, None, reader.row())
        case b"U":
            (oid,) = reader.take(">I")
            old = None
            if reader.byte() in {b"K", b"O"}:
                old = reader.row()
                reader.byte()
            return RowChange(oid, old, reader.row())
        case b"D":
            (oid,) = reader.take(">I")
            reader.byte()
            return RowChange(oid, reader.row(), None)
        case b"T":
            count, _ = reader.take(">Ib")
            return Truncate(reader.take(f">{count}I"))
        case _:
            return Other()


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.take(">I")
    schema, name = reader.text(), reader.text()
    _, count = reader.take(">bh")
    names, keys = [], []
    for _ in range(count):
        (flags,) = reader.take(">b")
        names.append(reader.text())
        reader.take(">Ii")
        keys.append(bool(flags & 1))
    return Relation(oid, schema or "pg_catalog", name, tuple(names), tuple(keys))


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> bytes:
        self._at += 1
        return self._data[self._at - 1 : self._at]

    def take(self, shape: str) -> tuple[int, ...]:
        values = struct.unpack_from(shape, self._data, self._at)
        self._at += struct.calcsize(shape)
        return values

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def row(self) -> tuple[Field, ...]:
        (count,) = self.take(">h")
        return tuple(self._field() for _ in range(count))

    def _field(self) -> Field:
        match self.byte():
            case b"n":
                return None
            case b"u":
                return UNCHANGED
            case kind:
                assert kind == b"t", f"{kind!r} was not asked for"
        (length,) = self.take(">i")
        self._at += length
        return self._data[self._at - length : self._at].decode()
