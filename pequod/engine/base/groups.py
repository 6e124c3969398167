"""The groups of a table: rows by the prefix that their keys share, and the prefixes in order.

    by prefix   p|bob| -> rows    p|liz| -> rows    p|abe| -> rows
    order       p|bob|  p|liz|
    fresh       p|abe|                               it gets its place before the order is used

Most reads and writes name a group, so a new one gets its place in the order late, with others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sortedcontainers import SortedList

from pequod.engine.base.rows import SortedRows
from pequod.native import core

#: How many new prefixes may wait for their places; to give them these takes a millisecond and a half.
FRESH_MAX: Final = 1024


class HotGroups:
    """Rows by the prefixes of their groups."""

    __slots__ = ("_by_prefix", "fresh")

    def __init__(self) -> None:
        self._by_prefix: dict[bytes, SortedRows] = {}
        #: The prefixes that have no place in the order yet.
        self.fresh: list[bytes] = []

    def __len__(self) -> int:
        return len(self._by_prefix)

    def get(self, prefix: bytes) -> SortedRows | None:
        """Return the rows of a group, None if there is none."""
        return self._by_prefix.get(prefix)

    def add(self, prefix: bytes) -> SortedRows:
        """Return the rows of a new group, none yet.

        Requires:
            There is no such group.
        """
        rows = self._by_prefix[prefix] = SortedRows()
        self.fresh.append(prefix)
        return rows

    def take_out(self, prefix: bytes) -> None:
        """Remove a group, except for its place in the order, which the caller removes."""
        del self._by_prefix[prefix]

    def items(self) -> list[tuple[bytes, SortedRows]]:
        """Return prefixes and rows, in no order."""
        return list(self._by_prefix.items())


if not TYPE_CHECKING and core is not None:
    HotGroups = core.HotGroups


class Groups(HotGroups):
    """The groups of one table.

    Invariants:
        1. ``_order`` and ``fresh`` together hold each group's prefix once.
    """

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__()
        self._order: SortedList[bytes] = SortedList()

    @property
    def order(self) -> SortedList[bytes]:
        """The prefixes in order, to be looked at alone, until the next group comes or goes.

        Cost:
            O(log groups) for each group that is new since the last look.
        """
        self._place()
        return self._order

    def make(self, prefix: bytes) -> SortedRows:
        """Return the rows of a group, which is made if there is none: then the caller puts rows into it."""
        rows = self.get(prefix)
        if rows is None:
            rows = self.add(prefix)
            if len(self.fresh) > FRESH_MAX:
                self._place()
        return rows

    def remove(self, prefix: bytes) -> None:
        """Remove a group."""
        self.order.remove(prefix)
        self.take_out(prefix)

    def _place(self) -> None:
        if self.fresh:
            self._order.update(self.fresh)
            self.fresh.clear()

    def _check(self) -> None:
        assert sorted([*self._order, *self.fresh]) == sorted(prefix for prefix, _ in self.items()), "invariant 1"
