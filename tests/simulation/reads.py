"""The reads of a schedule, and what they are to answer of given rows."""

from __future__ import annotations

from dataclasses import dataclass

from pequod.engine.testing import select
from tests.simulation.database import Rows
from tests.simulation.oracle import Ask


@dataclass(frozen=True)
class Get(Ask):
    """The value of a key."""

    key: bytes

    def __call__(self, rows: Rows) -> object:
        return rows.get(self.key)


@dataclass(frozen=True)
class MultiGet(Ask):
    """The values of keys."""

    keys: tuple[bytes, ...]

    def __call__(self, rows: Rows) -> object:
        return [rows.get(key) for key in self.keys]


@dataclass(frozen=True)
class Count(Ask):
    """The number of keys of a range."""

    first: bytes
    last: bytes | None

    def __call__(self, rows: Rows) -> object:
        return len(select(rows, self.first, self.last))


@dataclass(frozen=True)
class Chunk(Ask):
    """One chunk of a scan: the first rows of what is left of the range."""

    first: bytes
    last: bytes | None
    reverse: bool
    #: How many rows the chunk has; None: all, and it says that there are no more.
    count: int | None

    def __call__(self, rows: Rows) -> object:
        return select(rows, self.first, self.last, limit=self.count, reverse=self.reverse)
