"""Checksums of rows that a database and this process compute alike: one number for a range of a table.

    digest of a row   60 bits of MD5 of its key and its cells as texts, each with its length before it
    sum of a range    of the digests of its rows, in whatever order, and the number of rows

Equal rows of unlike texts only cost time: the rows are read then, and are equal. Unlike rows have equal sums once in
2^60. Kinds that a database writes in its own way have no text, and tables with such columns are read as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import md5
from typing import Any, Final, TypeAlias

from pequod_views.definition import DurableView, TableRow
from pequod_views.kinds import Cell

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HEX_DIGITS: Final = 15

#: An expression of a column's text, in which {} is the column, and what has the same text here.
CellText: TypeAlias = tuple[str, Callable[[Any], str]]


@dataclass(frozen=True, slots=True)
class RangeSum:
    """A part's position, and the sum of rows of the same moment."""

    server_id: str
    revision: int
    row_count: int
    digest: int


def _microseconds(cell: datetime) -> str:
    return str((cell - _EPOCH) // (cell.resolution))


def _numeric(cell: Decimal) -> str:
    return format(cell or abs(cell), "f")


POSTGRES: Final[Mapping[str, CellText]] = {
    "text": ("{}", str),
    "bytes": ("encode({}, 'hex')", bytes.hex),
    "integer": ("{}::text", str),
    "numeric": ("{}::text", _numeric),
    "float": ("encode(float8send({}), 'hex')", lambda cell: struct.pack(">d", cell).hex()),
    "boolean": ("{}::text", lambda cell: "true" if cell else "false"),
    "timestamp_s": ("(extract(epoch FROM {}) * 1000000)::bigint::text", _microseconds),
    "timestamp_us": ("(extract(epoch FROM {}) * 1000000)::bigint::text", _microseconds),
    "uuid": ("{}::text", str),
}
MARIADB: Final[Mapping[str, CellText]] = {
    "text": ("{}", str),
    "bytes": ("lower(hex({}))", bytes.hex),
    "integer": ("cast({} AS char)", str),
    "numeric": ("{}", lambda cell: format(cell, "f")),
    "boolean": ("cast({} AS char)", lambda cell: str(int(cell))),
    "json": ("{}", str),
    "timestamp_s": ("cast(timestampdiff(microsecond, '1970-01-01', {}) AS char)", _microseconds),
    "timestamp_us": ("cast(timestampdiff(microsecond, '1970-01-01', {}) AS char)", _microseconds),
    "uuid": ("{}", str),
}


def has_texts(texts: Mapping[str, CellText], view: DurableView) -> bool:
    """Return whether all columns of a view have texts."""
    return all(column.kind.name in texts for column in view.columns)


def digest_of(texts: Mapping[str, CellText], view: DurableView, row: TableRow) -> int:
    """Return the digest of a row as a database computes it of these texts."""
    key = row[0]
    assert isinstance(key, bytes), "the first cell of a row is its key"
    words = [key.hex()]
    for column, cell in zip(view.columns, row[1:], strict=True):
        text = None if cell is None else texts[column.kind.name][1](cell)
        words.append("-" if text is None else f"{len(text)}:{text}")
    return _digest("".join(words).encode())


def digest_of_cells(cells: Sequence[Cell]) -> int:
    """Return the digest of a row as it is stored, where both sides are computed in this process."""
    return _digest(repr([int(cell) if isinstance(cell, bool) else cell for cell in cells]).encode())


def _digest(data: bytes) -> int:
    return int(md5(data, usedforsecurity=False).hexdigest()[:_HEX_DIGITS], 16)


class CellsSum:
    """The sum as an aggregate of SQLite."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, *cells: Any) -> None:
        """Take a row."""
        self._sum += digest_of_cells(cells)

    def finalize(self) -> str | int:
        """Return the sum as a text: it may have more bits than a number of SQLite."""
        return str(self._sum)
