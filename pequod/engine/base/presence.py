"""Which ranges of a backed table are loaded (paper §3.3).

    p|          p|bob|       p|bob|5       p|bob}      p|liz|100         p|liz|200    p}
     . . . . . . [============)[============). . . . . . [================). . . . . .
       absent      loaded, in two parts: a key that is not stored does not exist       absent

When memory is short, one part is evicted at a time. Small parts that touch are united, so that many small loads do not
leave many parts; and a large load is cut, so that it is not evicted all at once.

>>> presence = Presence()
>>> presence.add(b"p|bob|", b"p|bob}", row_count=10).part.range
Range(first=b'p|bob|', last=b'p|bob}')
>>> presence.gaps(b"p|bob|5", b"p|bob~", read_number=1)
[Range(first=b'p|bob}', last=b'p|bob~')]
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pequod.engine.base.range_map import RangeMap, Stretch, gaps_between
from pequod.engine.memory.eviction import Rank, Ticket
from pequod.engine.read import Numbers
from pequod.language.ranges import Range

#: Parts that touch are united if they have no more rows together; larger loads are cut. Tests make it small.
PART_ROWS_MAX = 512


class Owner(Protocol):
    """Owns the parts of a table, and ranks them for eviction."""

    def rank(self, part: Part) -> Rank | None:
        """Return the place of a part in the order of eviction; see `Evictable.rank`."""


class Part(Stretch):
    """A loaded range that is evicted as a whole."""

    __slots__ = ("owner", "row_count", "ticket", "used")

    def __init__(self, first: bytes, last: bytes, row_count: int, owner: Owner | None) -> None:
        super().__init__(first, last)
        #: The number of rows when it was loaded.
        self.row_count = row_count
        self.owner = owner
        #: Has the number of the latest read that used it, or of a later one that will.
        self.used = Numbers()
        self.used.number = 0
        self.ticket: Ticket | None = None

    @property
    def last_used(self) -> int:
        """The number of the latest read that used it, or of a later one that will."""
        return self.used.number

    @last_used.setter
    def last_used(self, number: int) -> None:
        self.used.number = number

    @property
    def range(self) -> Range:
        """The range."""
        return Range(self.first, self.last)

    def rank(self) -> Rank | None:
        """Return the place in the order of eviction; None if it may not be evicted now."""
        assert self.owner is not None, "only parts with an owner enter"
        return self.owner.rank(self)


class Added(NamedTuple):
    """The result of adding a range: the new part, and the parts that it replaces."""

    part: Part
    absorbed: list[Part]


class Removed(NamedTuple):
    """The result of forgetting a range: the parts that are gone, and new parts for what is left of them."""

    gone: list[Part]
    left: list[Part]


class Presence(RangeMap[Part]):
    """The loaded ranges of one table.

    Invariants:
        1. ``uses`` has what says when each part was used, by its first key.
    """

    __slots__ = ("owner", "uses")

    def __init__(self) -> None:
        super().__init__()
        self.owner: Owner | None = None
        #: For the native core, whose reads use parts, too.
        self.uses: dict[bytes, Numbers] = {}

    def insert(self, added: Part) -> None:
        """Insert a part; see `RangeMap.insert`."""
        super().insert(added)
        self.uses[added.first] = added.used

    def remove(self, first: bytes) -> None:
        """Remove the part that begins at ``first``."""
        super().remove(first)
        del self.uses[first]

    def _check(self) -> None:
        super()._check()
        assert self.uses == {part.first: part.used for part in self}, "invariant 1"

    def holds(self, first: bytes, last: bytes, read_number: int) -> bool:
        """Return whether all of ``[first, last)`` is loaded; the loaded parts from ``first`` on count as used.

        Cost:
            O(1) at the beginning of a part, else O(log parts); and O(parts in the range).
        """
        part = self._by_first.get(first) or self.find(first)
        while part is not None:
            part.used.number = read_number
            if last <= part.last:
                return True
            part = self._by_first.get(part.last)
        return False

    def has(self, key: bytes) -> bool:
        """Return whether ``key`` lies in a loaded range; this does not count as a use."""
        return self.find(key) is not None

    def gaps(self, first: bytes, last: bytes, read_number: int) -> list[Range]:
        """Return the parts of ``[first, last)`` that are not loaded, in order; the loaded parts count as used.

        Cost:
            That of `holds` if all of it is loaded, else O(log parts + parts in the range).
        """
        if self.holds(first, last, read_number):
            return []
        parts = self.over(first, last)
        for part in parts:
            part.last_used = read_number
        return gaps_between(parts, first, last)

    def add(self, first: bytes, last: bytes, row_count: int) -> Added:
        """Note that ``[first, last)`` is loaded, with ``row_count`` rows.

        Requires:
            The range is not empty, and no key of it is loaded.
        """
        assert first < last
        absorbed = []
        for part in (self.floor(first), self.beginning_at(last)):
            if part is None or part.row_count + row_count > PART_ROWS_MAX:
                continue
            if part.last == first or part.first == last:
                self.remove(part.first)
                absorbed.append(part)
                first, last, row_count = min(first, part.first), max(last, part.last), row_count + part.row_count
        return Added(self.put(first, last, row_count), absorbed)

    def forget(self, first: bytes, last: bytes) -> Removed:
        """Note that no key of ``[first, last)`` is loaded any more."""
        removed = Removed(self.over(first, last), [])
        for part in removed.gone:
            self.remove(part.first)
            for start, stop in ((part.first, first), (last, part.last)):
                if part.first <= start < stop <= part.last:
                    removed.left.append(self.put(start, stop, part.row_count))
        return removed

    def first_over(self, first: bytes, last: bytes) -> Part | None:
        """Return the first part that shares a key with ``[first, last)``, None if there is none."""
        return next(self.walk_over(first, last), None) if first < last else None

    def put(self, first: bytes, last: bytes, row_count: int) -> Part:
        """Note a part, which is united with no other, and return it.

        Requires:
            No key of it is loaded.
        """
        part = Part(first, last, row_count, self.owner)
        self.insert(part)
        return part
