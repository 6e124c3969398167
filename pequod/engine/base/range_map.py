"""Ranges that do not overlap, in key order, each with its state.

    p|bob|        p|bob}    p|liz|100      p|liz|200
      [==============)        [===============)           stretches; between them are gaps

>>> loaded: RangeMap[Stretch] = RangeMap()
>>> loaded.insert(Stretch(b"p|bob|", b"p|bob}"))
>>> loaded.find(b"p|bob|7") is not None, loaded.find(b"p|bob}")
(True, None)
>>> gaps_between(loaded.over(b"p|bob|5", b"p|c"), b"p|bob|5", b"p|c")
[Range(first=b'p|bob}', last=b'p|c')]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final, Generic, TypeVar

from sortedcontainers import SortedDict

from pequod.language.ranges import Range


class Stretch:
    """A range; subclasses add its state."""

    __slots__ = ("first", "last")

    def __init__(self, first: bytes, last: bytes) -> None:
        self.first = first
        self.last = last


#: So many stretches get their places at the latest: half a millisecond.
FRESH_MAX: Final = 256

StretchT = TypeVar("StretchT", bound=Stretch)


class RangeMap(Generic[StretchT]):
    """Stretches by their first keys.

    Invariants:
        1. Stretches are not empty, in order and disjoint.
    """

    __slots__ = ("_fresh", "_placed")

    def __init__(self) -> None:
        self._placed: SortedDict[bytes, StretchT] = SortedDict()
        #: Stretches that get their places before any is looked for: reads of timelines do not look for each other's.
        self._fresh: list[StretchT] = []

    @property
    def _by_first(self) -> SortedDict[bytes, StretchT]:
        if self._fresh:
            self._place()
        return self._placed

    def _place(self) -> None:
        for stretch in self._fresh:
            self._placed[stretch.first] = stretch
        self._fresh.clear()

    def __len__(self) -> int:
        return len(self._placed) + len(self._fresh)

    def __iter__(self) -> Iterator[StretchT]:
        return iter(self._by_first.values())

    def insert(self, added: StretchT) -> None:
        """Insert a stretch.

        Requires:
            The stretch is not empty and overlaps no other.

        Cost:
            O(log stretches), when one is looked for.
        """
        self._fresh.append(added)
        if len(self._fresh) > FRESH_MAX:
            self._place()

    def remove(self, first: bytes) -> None:
        """Remove the stretch that begins at ``first``."""
        del self._by_first[first]

    def beginning_at(self, first: bytes) -> StretchT | None:
        """Return the stretch that begins at ``first``, None if there is none.

        Cost:
            O(1).
        """
        return self._by_first.get(first)

    def below(self, key: bytes) -> StretchT | None:
        """Return the last stretch that begins below ``key``, None if there is none."""
        at = self._by_first.bisect_left(key)
        if at == 0:
            return None
        found: StretchT = self._by_first.peekitem(at - 1)[1]
        return found

    def find(self, key: bytes) -> StretchT | None:
        """Return the stretch that holds ``key``, None in a gap.

        Cost:
            O(log stretches).
        """
        at = self._by_first.bisect_right(key)
        if at == 0:
            return None
        found: StretchT = self._by_first.peekitem(at - 1)[1]
        return found if key < found.last else None

    def is_gap(self, first: bytes, last: bytes) -> bool:
        """Return whether no stretch shares a key with ``[first, last)``; O(log stretches)."""
        by_first = self._by_first
        at = by_first.bisect_right(first)
        if at and first < by_first.peekitem(at - 1)[1].last:
            return False
        return at == len(by_first) or last <= by_first.peekitem(at)[0]

    def over(self, first: bytes, last: bytes) -> list[StretchT]:
        """Return the stretches that share a key with ``[first, last)``, in order.

        Cost:
            O(log stretches + stretches found).
        """
        by_first = self._by_first
        found = [by_first[key] for key in by_first.irange(first, last, inclusive=(False, False))]
        start = self.find(first)
        return found if start is None else [start, *found]

    def count_over(self, first: bytes, last: bytes) -> int:
        """Return how many stretches share a key with ``[first, last)``; O(log stretches)."""
        by_first = self._by_first
        begun: int = by_first.bisect_left(last) - by_first.bisect_left(first)
        before = self.below(first)
        return begun + (before is not None and first < before.last)

    def walk_over(self, first: bytes, last: bytes) -> Iterator[StretchT]:
        """Yield the stretches over a range, one after the other.

        Requires:
            The map is not changed while the iterator is live.
        """
        start = self.find(first)
        if start is not None:
            yield start
        for key in self._by_first.irange(first, last, inclusive=(False, False)):
            yield self._by_first[key]

    def beyond(self, first: bytes | None, count: int) -> list[StretchT]:
        """Return up to ``count`` stretches that begin above ``first``, in order; None: from the lowest."""
        return [self._by_first[key] for key in islice(self._by_first.irange(first, inclusive=(False, False)), count)]

    def some_over(self, first: bytes, last: bytes, count: int) -> Iterator[tuple[StretchT, int]]:
        """Yield about ``count`` stretches over ``[first, last)``, evenly, each with the number that it stands for."""
        begin, end = max(0, self._by_first.bisect_right(first) - 1), self._by_first.bisect_left(last)
        stride = max(1, (end - begin) // count)
        for key in islice(self._by_first.islice(begin, max(begin, end)), 0, None, stride):
            yield self._by_first[key], stride

    def _check(self) -> None:
        assert all(first == one.first < one.last for first, one in self._by_first.items()), "invariant 1"
        assert all(a.last <= b.first for a, b in pairwise(self._by_first.values())), "invariant 1"


def gaps_between(stretches: Iterable[Stretch], first: bytes, last: bytes) -> list[Range]:
    """Return the parts of ``[first, last)`` that none of the stretches over it holds, in order."""
    found = []
    at = first
    for one in stretches:
        if at < one.first:
            found.append(Range(at, one.first))
        at = one.last
    if at < last:
        found.append(Range(at, last))
    return found
