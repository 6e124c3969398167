"""Counts of rows on disk that stay exact while they are made, slice by slice, and others write.

    [p|, p})    p| ======== counted ========|at ........ p}     a commit of p|bob|1, which is new:  + 1
                                                                a commit of p|zoe|1, behind `at`:   it is counted later

So what a count takes does not depend on how many rows it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pequod.engine import Range
from pequod_server.data.rows import StoredRows

Effects = Mapping[bytes, bytes | None]


@dataclass(slots=True, eq=False)
class Counted:
    """A range whose rows are counted up to some key.

    Invariants:
        1. ``count`` rows of ``[first, at)`` are on disk.
    """

    first: bytes
    last: bytes
    at: bytes
    count: int = 0
    #: How many calls wait for it, or may ask for it in their next turn.
    wanted: int = 0
    #: How long it took, once it is made, and the engine's time then: keys that were due later are in it.
    took_s: float = 0.0
    made_ms: int = 0

    def change(self, rows: StoredRows, effects: Effects) -> int:
        """Return by how much changes that are not on disk yet will change the count.

        Raises:
            RowsError: They cannot be read.

        Cost:
            3 µs for each key in the range.
        """
        found = [(key, value) for key, value in effects.items() if self.first <= key < self.at]
        return sum((value is not None) - (rows.get(key) is not None) for key, value in found)


class Counts:
    """The counts of the rows of one folder that are under way, or were just made."""

    __slots__ = ("_by_range",)

    def __init__(self) -> None:
        self._by_range: dict[Range, Counted] = {}

    def begin(self, one: Range) -> Counted:
        """Return the count of a range, which others may have begun; call `end` for it later."""
        counted = self._by_range.setdefault(one, Counted(*one, at=one.first))
        counted.wanted += 1
        return counted

    def drop(self, one: Range) -> None:
        """Have a range be counted anew, by those who begin from now on."""
        self._by_range.pop(one, None)

    def end(self, counted: Counted) -> None:
        """Note that one of those who began a count does not need it any more."""
        counted.wanted -= 1
        one = Range(counted.first, counted.last)
        if not counted.wanted and self._by_range.get(one) is counted:
            del self._by_range[one]

    def find(self, one: Range) -> Counted | None:
        """Return the count of a range, None if it is not made to its end."""
        counted = self._by_range.get(one)
        return counted if counted is not None and counted.at == counted.last else None

    @contextmanager
    def following(self, rows: StoredRows, effects: Effects) -> Iterator[None]:
        """Have the counts follow a commit of changes, unless it fails.

        Raises:
            RowsError: Rows cannot be read; the commit has not begun.
        """
        changes = [(counted, counted.change(rows, effects)) for counted in self._by_range.values()]
        yield
        for counted, change in changes:
            counted.count += change
