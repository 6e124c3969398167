"""The coverage of a join's output: which ranges are materialised, and which are gaps (paper §3.2).

t|ann|      t|ann|0100   t|ann|0200   t|ann|0500     t|ann}  t|bob|
  |    gap     |############|    gap      |############|  gap  |
                status ranges in key order, disjoint, of whatever contexts
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, pairwise

from sortedcontainers import SortedDict

from pequod.engine.base.rows import Rows
from pequod.engine.joins.contexts import Context, StatusRange


class Coverage:
    """The status ranges of one join in key order.

    Invariants:
        1. Ranges are disjoint.
    """

    __slots__ = ("_by_first",)

    def __init__(self) -> None:
        self._by_first: SortedDict[bytes, StatusRange] = SortedDict()

    def __len__(self) -> int:
        return len(self._by_first)

    def __iter__(self) -> Iterator[StatusRange]:
        return iter(self._by_first.values())

    def beyond(self, first: bytes | None, count: int) -> list[StatusRange]:
        """Return up to so many status ranges that begin above ``first``, in order; None: from the lowest."""
        return [self._by_first[key] for key in islice(self._by_first.irange(first, inclusive=(False, False)), count)]

    def find(self, key: bytes) -> StatusRange | None:
        """Return the status range that holds ``key``, None in a gap.

        Cost:
            O(log ranges).
        """
        at = self._by_first.bisect_right(key)
        if at == 0:
            return None
        status = self._by_first.peekitem(at - 1)[1]
        return status if key < status.last else None

    def overlapping(self, first: bytes, last: bytes) -> list[StatusRange]:
        """Return the status ranges that share a key with ``[first, last)``, in order."""
        at = self._by_first.bisect_right(first)
        found = []
        if at > 0:
            status = self._by_first.peekitem(at - 1)[1]
            if first < status.last:
                found.append(status)
        found += [self._by_first[key] for key in self._by_first.irange(first, last, inclusive=(False, False))]
        return found

    def slice(self, first: bytes, last: bytes, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return what is materialised in ``[first, last)``; see `SortedRows.slice`."""
        found = Rows([], [])
        ranges = self.overlapping(first, last)
        for status in reversed(ranges) if reverse else ranges:
            wanted = None if limit is None else limit - len(found.keys)
            if wanted == 0:
                break
            start, stop = max(first, status.first), min(last, status.last)
            rows = status.context.slice(start, stop, wanted, reverse=reverse)
            if len(ranges) == 1:
                return rows
            found.keys.extend(rows.keys)
            found.values.extend(rows.values)
        return found

    def count(self, first: bytes, last: bytes) -> int:
        """Return how many materialised keys ``[first, last)`` holds."""
        return sum(
            status.context.count(max(first, status.first), min(last, status.last))
            for status in self.overlapping(first, last)
        )

    def sample(self, first: bytes, last: bytes, step: int, ranges_max: int) -> Iterator[tuple[bytes, int]]:
        """Yield materialised keys of ``[first, last)``, each with the number of rows that it about stands for.

        Args:
            step: At most so many rows of one status range for a key.
            ranges_max: Look at so many status ranges, or twice as many; each stands for its neighbours too.
        """
        begin, end = max(0, self._by_first.bisect_right(first) - 1), self._by_first.bisect_left(last)
        stride = max(1, (end - begin) // ranges_max)
        for key in islice(self._by_first.islice(begin, max(begin, end)), 0, None, stride):
            status = self._by_first[key]
            for found, count in status.context.sample(max(first, status.first), min(last, status.last), step):
                yield found, count * stride

    def reach(self, first: bytes, last: bytes, row_count: int) -> bytes:
        """Return the end of the range, counted from ``first`` on, in which so many rows are met; ``last`` if none is.

        Cost:
            O(log ranges + ranges up to there).
        """
        start = self.find(first)
        following = self._by_first.irange(first, last, inclusive=(False, False))
        for status in chain([] if start is None else [start], map(self._by_first.__getitem__, following)):
            stop = min(last, status.last)
            row_count -= status.context.count(max(first, status.first), stop)
            if row_count <= 0:
                return stop
        return last

    def gaps(self, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """Return the parts of ``[first, last)`` that no status range covers, in order."""
        return gaps_between(self.overlapping(first, last), first, last)

    def add(self, first: bytes, last: bytes, context: Context) -> None:
        """Cover a gap, joining it with neighbours of the same context.

        Requires:
            No status range overlaps ``[first, last)``.
        """
        below = self.find_ending(first, context)
        above = self._by_first.get(last)
        if above is not None and above.context is context:
            last = above.last
            del self._by_first[above.first]
            context.remove_range(above)
        if below is not None:
            below.last = last
            context.resize()
            return
        status = StatusRange(first, last, context)
        self._by_first[first] = status
        context.add_range(status)

    def find_ending(self, last: bytes, context: Context) -> StatusRange | None:
        """Return the status range of ``context`` that ends at ``last``, if there is one."""
        at = self._by_first.bisect_left(last)
        if at == 0:
            return None
        status = self._by_first.peekitem(at - 1)[1]
        return status if status.last == last and status.context is context else None

    def discard(self, context: Context) -> None:
        """Take out all status ranges of ``context``."""
        for status in context.ranges:
            del self._by_first[status.first]
        context.clear_ranges()

    def _check(self) -> None:
        for a, b in pairwise(self._by_first.values()):
            assert a.last <= b.first, "invariant 1"
        for first, status in self._by_first.items():
            assert first == status.first
            assert status in status.context.ranges


def gaps_between(ranges: list[StatusRange], first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parts of ``[first, last)`` that none of the status ranges overlapping it covers, in order."""
    found = []
    at = first
    for status in ranges:
        if at < status.first:
            found.append((at, status.first))
        at = status.last
    if at < last:
        found.append((at, last))
    return found
