"""Counts of ranges, of which a disk may have a part alone.

    [o|, q|)     o| .. p|     all here                   counted here
                 p| .. p}     paged, and not all here    what keeps it counts all of it, the rows that are here as well
                 p} .. q|     all here                   counted here

So a count takes no memory for the rows that it counts.
"""

from __future__ import annotations

from collections.abc import Callable

from pequod.engine.base.store import Store
from pequod.engine.read import Read
from pequod.engine.reads.scans import Scans
from pequod.engine.writes.catalog import Catalog
from pequod.language.missing import MissingError, Uncounted
from pequod.language.ranges import Range


class Counts:
    """Counts the keys of ranges."""

    __slots__ = ("_catalog", "_scans", "_store", "kept")

    def __init__(self, store: Store, catalog: Catalog, scans: Scans) -> None:
        self._store = store
        self._catalog = catalog
        self._scans = scans
        #: Returns how many rows of a range of a paged table there are now, here or not; None: that is not known.
        self.kept: Callable[[Range], int | None] | None = None

    def count(self, first: bytes, last: bytes | None, read: Read) -> int:
        """Return the number of keys in ``[first, last)``; see `Engine.count`."""
        kept = self.kept
        away = [] if kept is None else self._away(first, last, read)
        if kept is None or not away:
            return self._count_here(first, last, read)
        found, at = 0, first
        for one in away:
            found += self._count_here(at, one.first, read)
            at = one.last
        found += self._count_here(at, last, read)
        # Last: what keeps them knows a count for some time only.
        counts = [kept(one) for one in away]
        uncounted = [Uncounted(*one) for one, count in zip(away, counts, strict=True) if count is None]
        if uncounted:
            raise MissingError(uncounted)
        return found + sum(count for count in counts if count is not None)

    def _away(self, first: bytes, last: bytes | None, read: Read) -> list[Range]:
        """Return the parts of a range that are of paged tables and not all here, in order."""
        found = []
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if not table.is_paged or start >= stop or table.presence is None:
                continue
            if not table.presence.holds(start, stop, read.number):
                found.append(Range(start, stop))
        return sorted(found)

    def _count_here(self, first: bytes, last: bytes | None, read: Read) -> int:
        if last is not None and first >= last:
            return 0
        joins = self._catalog.over(first, last)
        pulled = self._scans.bring_up(joins, first, last, read)
        if pulled or any(join.rivals for join in joins):
            return len(self._scans.scan_any_range(first, last, None, reverse=False, read=read).keys)
        return self._store.count(first, last) + sum(join.coverage.count(*join.clip(first, last)) for join in joins)
