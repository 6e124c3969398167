"""Which ranges of a backed table are loaded (paper §3.3).

    p|          p|bob|            p|bob}      p|liz|100         p|liz|200    p}
     . . . . . . [=================). . . . . . [================). . . . . .
       absent      loaded: a key that is not stored does not exist    absent

>>> presence = Presence()
>>> presence.add(b"p|bob|", b"p|bob}")
>>> presence.gaps(b"p|bob|5", b"p|bob~")
[Range(first=b'p|bob}', last=b'p|bob~')]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sortedcontainers import SortedDict

from pequod.engine.ranges import Range


class Presence:
    """The loaded ranges of one table.

    Invariants:
        1. Ranges are not empty, disjoint and never adjacent.
    """

    __slots__ = ("_last_of",)

    def __init__(self) -> None:
        #: Where each range begins -> where it ends.
        self._last_of: SortedDict[bytes, bytes] = SortedDict()

    def __len__(self) -> int:
        return len(self._last_of)

    def __iter__(self) -> Iterator[Range]:
        return iter([Range(first, last) for first, last in self._last_of.items()])

    def holds(self, first: bytes, last: bytes) -> bool:
        """Tell whether all of ``[first, last)`` is loaded.

        Cost:
            O(1) from where a range begins, else O(log ranges).
        """
        stop = self._last_of.get(first)
        if stop is None:
            stop = self._reach(first)
        return stop is not None and last <= stop

    def has(self, key: bytes) -> bool:
        """Tell whether ``key`` lies in a loaded range."""
        return self._reach(key) is not None

    def gaps(self, first: bytes, last: bytes) -> list[Range]:
        """Return the parts of ``[first, last)`` that are not loaded, in order."""
        found = []
        at = self._reach(first) or first
        for start in self._last_of.irange(at, last, inclusive=(True, False)):
            if at < start:
                found.append(Range(at, start))
            at = self._last_of[start]
        if at < last:
            found.append(Range(at, last))
        return found

    def add(self, first: bytes, last: bytes) -> None:
        """Note that ``[first, last)`` is loaded.

        Requires:
            The range is not empty.
        """
        assert first < last
        below = self._last_of.bisect_right(first) - 1
        if below >= 0:
            start, stop = self._last_of.peekitem(below)
            if first <= stop:
                first, last = start, max(last, stop)
        for start in list(self._last_of.irange(first, last)):
            last = max(last, self._last_of.pop(start))
        self._last_of[first] = last

    def discard(self, first: bytes, last: bytes) -> None:
        """Note that nothing of ``[first, last)`` is loaded any more."""
        below = self._last_of.bisect_left(first) - 1
        if below >= 0:
            start, stop = self._last_of.peekitem(below)
            if first < stop:
                self._last_of[start] = first
                if last < stop:
                    self._last_of[last] = stop
        for start in list(self._last_of.irange(first, last, inclusive=(True, False))):
            stop = self._last_of.pop(start)
            if last < stop:
                self._last_of[last] = stop

    def _reach(self, key: bytes) -> bytes | None:
        """Return where the range that holds ``key`` ends, None if there is none."""
        at = self._last_of.bisect_right(key) - 1
        if at < 0:
            return None
        stop: bytes = self._last_of.peekitem(at)[1]
        return stop if key < stop else None

    def _check(self) -> None:
        assert all(first < last for first, last in self._last_of.items()), "invariant 1"
        assert all(a.last < b.first for a, b in pairwise(self)), "invariant 1"
