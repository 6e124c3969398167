"""Which ranges of a backed table are loaded (paper §3.3).

    p|          p|bob|       p|bob|5       p|bob}      p|liz|100         p|liz|200    p}
     . . . . . . [============)[============). . . . . . [================). . . . . .
       absent      loaded, in two parts: a key that is not stored does not exist       absent

A part is what goes at a time when memory is short. Parts that touch are made one while they are small, so that neither
many small loads leave many parts, nor one large load a part that goes all at once.

>>> presence = Presence()
>>> presence.add(b"p|bob|", b"p|bob}", row_count=10).part.range
Range(first=b'p|bob|', last=b'p|bob}')
>>> presence.gaps(b"p|bob|5", b"p|bob~", read_number=1)
[Range(first=b'p|bob}', last=b'p|bob~')]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

from sortedcontainers import SortedDict

from pequod.engine.memory.eviction import Rank, Ticket
from pequod.language.ranges import Range

#: Parts that touch are made one if they have no more rows together; larger loads are cut. Tests make it small.
PART_ROWS_MAX = 512


class Owner(Protocol):
    """Who takes care of the parts of a table when memory is short."""

    def rank(self, part: Part) -> Rank | None:
        """Return the place of a part in the order of going; see `Evictable.rank`."""


class Part:
    """A range that is loaded, and goes as a whole."""

    __slots__ = ("first", "last", "last_used", "owner", "row_count", "ticket")

    def __init__(self, first: bytes, last: bytes, row_count: int, owner: Owner | None) -> None:
        self.first = first
        self.last = last
        #: As of the load.
        self.row_count = row_count
        self.owner = owner
        #: The read number of the latest read, or one to come.
        self.last_used = 0
        self.ticket: Ticket | None = None

    @property
    def range(self) -> Range:
        """The range."""
        return Range(self.first, self.last)

    def rank(self) -> Rank | None:
        """Return the place in the order of going; None if it may not go now."""
        assert self.owner is not None, "only parts with an owner enter"
        return self.owner.rank(self)


class Added(NamedTuple):
    """What became of a range that was added: a new part, and those that it took in."""

    part: Part
    absorbed: list[Part]


class Removed(NamedTuple):
    """What became of a range that was discarded: parts that are gone, and new ones of what is left of them."""

    gone: list[Part]
    left: list[Part]


class Presence:
    """The loaded ranges of one table.

    Invariants:
        1. Parts are not empty, in order and disjoint.
    """

    __slots__ = ("_by_first", "owner")

    def __init__(self) -> None:
        self._by_first: SortedDict[bytes, Part] = SortedDict()
        self.owner: Owner | None = None

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[Part]:
        return iter(list(self._by_first.values()))

    def holds(self, first: bytes, last: bytes, read_number: int) -> bool:
        """Tell whether all of ``[first, last)`` is loaded; what of it is from ``first`` on is used.

        Cost:
            O(1) from where a part begins, else O(log parts); and O(parts in the range).
        """
        part = self._by_first.get(first) or self.find(first)
        while part is not None:
            part.last_used = read_number
            if last <= part.last:
                return True
            part = self._by_first.get(part.last)
        return False

    def has(self, key: bytes) -> bool:
        """Tell whether ``key`` lies in a loaded range; that is no use of it."""
        return self.find(key) is not None

    def gaps(self, first: bytes, last: bytes, read_number: int) -> list[Range]:
        """Return the parts of ``[first, last)`` that are not loaded, in order; what is loaded of it is used."""
        found = []
        at = first
        for part in self._over(first, last):
            part.last_used = read_number
            if at < part.first:
                found.append(Range(at, part.first))
            at = part.last
        if at < last:
            found.append(Range(at, last))
        return found

    def add(self, first: bytes, last: bytes, row_count: int) -> Added:
        """Note that ``[first, last)`` is loaded, with so many rows.

        Requires:
            The range is not empty, and nothing of it is loaded.
        """
        assert first < last
        absorbed = []
        below = self._by_first.bisect_left(first) - 1
        for part in (
            self._by_first.peekitem(below)[1] if below >= 0 else None,
            self._by_first.get(last),
        ):
            if part is None or part.row_count + row_count > PART_ROWS_MAX:
                continue
            if part.last == first or part.first == last:
                del self._by_first[part.first]
                absorbed.append(part)
                first, last, row_count = min(first, part.first), max(last, part.last), row_count + part.row_count
        return Added(self._put(first, last, row_count), absorbed)

    def discard(self, first: bytes, last: bytes) -> Removed:
        """Note that nothing of ``[first, last)`` is loaded any more."""
        removed = Removed(self._over(first, last), [])
        for part in removed.gone:
            del self._by_first[part.first]
            for start, stop in ((part.first, first), (last, part.last)):
                if part.first <= start < stop <= part.last:
                    removed.left.append(self._put(start, stop, part.row_count))
        return removed

    def find(self, key: bytes) -> Part | None:
        """Return the part that holds ``key``, None if there is none."""
        at = self._by_first.bisect_right(key) - 1
        if at < 0:
            return None
        part: Part = self._by_first.peekitem(at)[1]
        return part if key < part.last else None

    def first_over(self, first: bytes, last: bytes) -> Part | None:
        """Return the first part that shares a key with ``[first, last)``, None if there is none."""
        if first >= last:
            return None
        found = self.find(first)
        if found is None:
            above = next(self._by_first.irange(first, last, inclusive=(False, False)), None)
            found = None if above is None else self._by_first[above]
        return found

    def _put(self, first: bytes, last: bytes, row_count: int) -> Part:
        part = self._by_first[first] = Part(first, last, row_count, self.owner)
        return part

    def _over(self, first: bytes, last: bytes) -> list[Part]:
        """Return the parts that share a key with ``[first, last)``, in order."""
        start = self.find(first)
        found = [self._by_first[key] for key in self._by_first.irange(first, last, inclusive=(False, False))]
        return found if start is None else [start, *found]

    def _check(self) -> None:
        assert all(first == part.first < part.last for first, part in self._by_first.items()), "invariant 1"
        assert all(a.last <= b.first for a, b in pairwise(self)), "invariant 1"
