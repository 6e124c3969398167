"""The coverage of a join's output: which ranges are materialised, and which are gaps (paper §3.2).

t|ann|      t|ann|0100   t|ann|0200   t|ann|0500     t|ann}  t|bob|
  |    gap     |############|    gap      |############|  gap  |
                status ranges in key order, disjoint, of any contexts
"""

from __future__ import annotations

from collections.abc import Iterator

from pequod.answers.rows import Rows
from pequod.engine.base.range_map import RangeMap, gaps_between
from pequod.engine.joins.contexts import Context, StatusRange
from pequod.language.ranges import Range


class Coverage(RangeMap[StatusRange]):
    """The status ranges of one join in key order."""

    __slots__ = ()

    def slice(self, first: bytes, last: bytes, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return the materialised rows of ``[first, last)``; see `SortedRows.slice`."""
        found = Rows([], [])
        ranges = self.over(first, last)
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
        """Return the number of materialised keys in ``[first, last)``."""
        return sum(
            status.context.count(max(first, status.first), min(last, status.last)) for status in self.over(first, last)
        )

    def sample(self, first: bytes, last: bytes, step: int, ranges_max: int) -> Iterator[tuple[bytes, int]]:
        """Yield materialised keys of ``[first, last)``, each with the number of rows that it stands for, approximately.

        Args:
            first: The first key.
            last: The end of the range.
            step: The greatest number of rows of one status range for a key.
            ranges_max: Examine this many status ranges, or up to twice as many; each stands for its neighbours too.
        """
        for status, weight in self.some_over(first, last, ranges_max):
            for found, count in status.context.sample(max(first, status.first), min(last, status.last), step):
                yield found, count * weight

    def gaps(self, first: bytes, last: bytes) -> list[Range]:
        """Return the parts of ``[first, last)`` that no status range covers, in order."""
        return gaps_between(self.over(first, last), first, last)

    def add(self, first: bytes, last: bytes, context: Context) -> None:
        """Cover a gap, joining it with neighbours of the same context.

        Requires:
            No status range overlaps ``[first, last)``.
        """
        if not context.ranges:
            # There are no neighbours of its own.
            self._insert(first, last, context)
            return
        below = self.floor(first)
        above = self.beginning_at(last)
        if above is not None and above.context is context:
            last = above.last
            self.remove(above.first)
            context.remove_range(above)
        if below is not None and below.last == first and below.context is context:
            self.lengthen(below, last)
            context.resize()
            return
        self._insert(first, last, context)

    def _insert(self, first: bytes, last: bytes, context: Context) -> None:
        # Its own object does for both.
        status = StatusRange(first, context.end if last == context.end else last, context)
        self.insert(status)
        context.add_range(status)

    def drop(self, context: Context) -> None:
        """Remove all status ranges of ``context``."""
        for status in context.ranges:
            self.remove(status.first)
        context.clear_ranges()

    def _check(self) -> None:
        super()._check()
        assert all(status in status.context.ranges for status in self)
