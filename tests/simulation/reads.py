"""The reads of a schedule, and what they are to answer of given rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from pequod.engine.testing import select
from tests.simulation.database import Rows
from tests.simulation.oracle import Ask, Timed, plausible_rows

Values = list[bytes | None]


@dataclass(frozen=True)
class Get(Ask):
    """The value of a key."""

    key: bytes

    def __call__(self, rows: Rows) -> object:
        return rows.get(self.key)

    def bounds(self) -> Sequence[tuple[bytes, bytes | None]]:
        return [(self.key, self.key + b"\0")]

    def plausible(self, found: object, states: Sequence[Rows], timed: Timed) -> bool | None:
        return MultiGet((self.key,)).plausible([found], states, timed)


@dataclass(frozen=True)
class MultiGet(Ask):
    """The values of keys."""

    keys: tuple[bytes, ...]

    def __call__(self, rows: Rows) -> object:
        return [rows.get(key) for key in self.keys]

    def bounds(self) -> Sequence[tuple[bytes, bytes | None]]:
        return [(key, key + b"\0") for key in self.keys]

    def plausible(self, found: object, states: Sequence[Rows], timed: Timed) -> bool | None:
        pairs = dict(zip(self.keys, cast("Values", found), strict=True))
        rows = {key: value for key, value in pairs.items() if value is not None}
        return plausible_rows(rows, [key for key in pairs if key not in rows], states, timed)


@dataclass(frozen=True)
class Count(Ask):
    """The number of keys of a range."""

    first: bytes
    last: bytes | None

    def __call__(self, rows: Rows) -> object:
        return len(select(rows, self.first, self.last))

    def bounds(self) -> Sequence[tuple[bytes, bytes | None]]:
        return [(self.first, self.last)]

    def plausible(self, found: object, states: Sequence[Rows], timed: Timed) -> bool | None:
        return None


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

    def bounds(self) -> Sequence[tuple[bytes, bytes | None]]:
        return [(self.first, self.last)]

    def plausible(self, found: object, states: Sequence[Rows], timed: Timed) -> bool | None:
        pairs = cast("list[tuple[bytes, bytes]]", found)
        rows, first, last = dict(pairs), self.first, self.last
        if self.count is not None and len(pairs) == self.count:
            first, last = (pairs[-1][0], last) if self.reverse else (first, pairs[-1][0])
        known = {key for state in states for key, _ in select(state, first, last)}
        return plausible_rows(rows, [key for key in sorted(known) if key not in rows], states, timed)
