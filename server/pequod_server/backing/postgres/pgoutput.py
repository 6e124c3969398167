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
    """Stands for a large value that an update did not change and that is not sent again."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
#: A column as the bytes of its text, NULL, or not sent.
Field = bytes | None | _Unchanged
_TEXT, _NULL, _SAME = b"tnu"
_LENGTH: Final = struct.Struct(">i").unpack_from
_TABLE: Final = struct.Struct(">I").unpack_from


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that committed; its changes follow."""

    transaction: int
    #: The position of its commit: everything that was committed before has been sent.
    position: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction, and the position after it."""

    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """The columns of a table, sent before its first change and after it was altered."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    #: Whether old rows have each column.
    is_identity: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """These tables were emptied."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A message that does not concern rows."""


Message = Begin | Commit | Relation | Truncate | Other
#: The kinds of messages about one row: an insert has no old row, a delete no new one, and an update an old one if its
#: identity changed. `read_columns` reads them, and only the needed columns, since they are many.
INSERT, UPDATE, DELETE, NEW_ROW, WHOLE_ROW = b"IUDNO"
ROWS: Final = frozenset([INSERT, UPDATE, DELETE])
#: The place of the first row in such a message, after its kind, its table and the kind of row.
ROW_AT: Final = 6


def parse_message(data: bytes) -> Message:
    """Return the message in ``data``, which is not about a row."""
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
        case b"T":
            count, _ = reader.take(">Ib")
            return Truncate(reader.take(f">{count}I"))
        case _:
            return Other()


def table_of(data: bytes) -> int:
    """Return the number of the table of a message about a row."""
    number: int = _TABLE(data, 1)[0]
    return number


def read_columns(data: bytes, at: int, count: int) -> tuple[list[Field], int]:
    """Return the first ``count`` columns of a row that begins at ``at``, and where the next one begins."""
    at += 2
    row: list[Field] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            start = at + 4
            at = start + _LENGTH(data, at)[0]
            row.append(data[start:at])
        elif kind == _NULL:
            row.append(None)
        elif kind == _SAME:
            row.append(UNCHANGED)
        else:
            raise ValueError(f"a column of kind {kind!r} was not asked for")
    return row, at


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
