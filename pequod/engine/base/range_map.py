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
from itertools import pairwise
from typing import Final, Generic, TypeVar

from pequod.engine.base.rows import SortedRows
from pequod.language.ranges import Range


class Stretch:
    """A range; subclasses add its state."""

    __slots__ = ("first", "last")

    def __init__(self, first: bytes, last: bytes) -> None:
        self.first = first
        self.last = last


#: How many stretches are looked up at a time where they are asked for one by one.
_AT_A_TIME: Final = 64

StretchT = TypeVar("StretchT", bound=Stretch)


class RangeMap(Generic[StretchT]):
    """Stretches by their first keys.

    Invariants:
        1. Stretches are not empty, in order and disjoint.
        2. ``bounds`` has the first key of each stretch, and its end as the value.
    """

    __slots__ = ("_by_first", "bounds")

    def __init__(self) -> None:
        self._by_first: dict[bytes, StretchT] = {}
        #: For the native core, too, which looks for keys in it.
        self.bounds = SortedRows()

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[StretchT]:
        return map(self._by_first.__getitem__, self.bounds.slice(b"", None).keys)

    def insert(self, added: StretchT) -> None:
        """Insert a stretch.

        Requires:
            The stretch is not empty and overlaps no other.

        Cost:
            O(log stretches).
        """
        self._by_first[added.first] = added
        self.bounds.put(added.first, added.last)

    def lengthen(self, stretch: StretchT, last: bytes) -> None:
        """Let a stretch end later.

        Requires:
            It then overlaps no other.
        """
        stretch.last = last
        self.bounds.put(stretch.first, last)

    def remove(self, first: bytes) -> None:
        """Remove the stretch that begins at ``first``."""
        del self._by_first[first]
        self.bounds.remove(first)

    def beginning_at(self, first: bytes) -> StretchT | None:
        """Return the stretch that begins at ``first``, None if there is none.

        Cost:
            O(1).
        """
        return self._by_first.get(first)

    def floor(self, key: bytes) -> StretchT | None:
        """Return the last stretch that begins at ``key`` or below, None if there is none; O(log stretches)."""
        first = self.bounds.floor_key(key)
        return None if first is None else self._by_first[first]

    def find(self, key: bytes) -> StretchT | None:
        """Return the stretch that holds ``key``, None in a gap; O(log stretches)."""
        first = self.bounds.floor_key(key)
        if first is None:
            return None
        found = self._by_first[first]
        return found if key < found.last else None

    def is_gap(self, first: bytes, last: bytes) -> bool:
        """Return whether no stretch shares a key with ``[first, last)``; O(log stretches)."""
        return self.find(first) is None and not self.bounds.slice(first, last, 1).keys

    def over(self, first: bytes, last: bytes) -> list[StretchT]:
        """Return the stretches that share a key with ``[first, last)``, in order.

        Cost:
            O(log stretches + stretches found).
        """
        found = [self._by_first[key] for key in self.bounds.slice(first + b"\0", last).keys]
        start = self.find(first)
        return found if start is None else [start, *found]

    def count_over(self, first: bytes, last: bytes) -> int:
        """Return how many stretches share a key with ``[first, last)``; O(log stretches)."""
        start = self.floor(first)
        return self.bounds.count(first, last) + (start is not None and start.first < first < start.last)

    def walk_over(self, first: bytes, last: bytes) -> Iterator[StretchT]:
        """Yield the stretches over a range, one after the other.

        Requires:
            The map is not changed while the iterator is live.
        """
        start = self.find(first)
        if start is not None:
            yield start
        while keys := self.bounds.slice(first + b"\0", last, _AT_A_TIME).keys:
            yield from map(self._by_first.__getitem__, keys)
            first = keys[-1]

    def beyond(self, first: bytes | None, count: int) -> list[StretchT]:
        """Return up to ``count`` stretches that begin above ``first``, in order; None: from the lowest."""
        lower = b"" if first is None else first + b"\0"
        return [self._by_first[key] for key in self.bounds.slice(lower, None, count).keys]

    def some_over(self, first: bytes, last: bytes, count: int) -> Iterator[tuple[StretchT, int]]:
        """Yield about ``count`` stretches over ``[first, last)``, evenly, each with the number that it stands for."""
        lower = self.bounds.floor_key(first) or first
        stride = max(1, self.bounds.count(lower, last) // count)
        for key, number in self.bounds.sample(lower, last, stride):
            yield self._by_first[key], number

    def _check(self) -> None:
        stretches = list(self)
        assert all(first == one.first < one.last for first, one in self._by_first.items()), "invariant 1"
        assert all(a.last <= b.first for a, b in pairwise(stretches)), "invariant 1"
        assert list(zip(*self.bounds.everything(), strict=True)) == [
            (first, self._by_first[first].last) for first in sorted(self._by_first)
        ], "invariant 2"


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
