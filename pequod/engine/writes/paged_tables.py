"""Paged tables: clients write them, and a disk has the rows that are not here.

    p|          p|bob|       p|bob}      p|liz|         p}
     . . . . . . [=============) . . . . . [=============)       . . on disk alone     === here as well

page         no row of the table is here
take in      a gap, with the rows that the disk has of it; no dependant is told, since none waits there
part from    the least recently used ranges, when memory is short, with everything that was computed from them
hold whole   all rows are here, and stay
page whole   the rows of a table may go from now on, since those that stay take too much memory: all of it is one part
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from pequod.engine.base.store import Store
from pequod.engine.base.table import Table
from pequod.engine.joins.relations import Directory
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.ledger import ROW, UNLIMITED
from pequod.engine.writes.backed import Backed
from pequod.engine.writes.catalog import Catalog
from pequod.language.errors import LimitExceededError
from pequod.language.ranges import Range


class PagedTables:
    """The paged tables of an engine.

    Invariants:
        1. Every stored key of a paged table lies in a loaded range, and every key of it that is in a loaded range and
           not stored is not there.
    """

    __slots__ = ("_backed", "_catalog", "_directory", "_memory", "_store")

    def __init__(self, store: Store, directory: Directory, catalog: Catalog, backed: Backed, memory: Evictor) -> None:
        self._store = store
        self._directory = directory
        self._catalog = catalog
        #: It has the parts of all tables of which ranges may be loaded or not.
        self._backed = backed
        self._memory = memory

    def page(self, name: bytes) -> None:
        """Declare that a disk has rows of a table that are not here; see `Engine.page`."""
        relations, presence = self._directory.page(name)
        self._backed.own(relations, presence)
        self._catalog.source_backed(relations.table)

    def page_largest(self) -> bytes | None:
        """Let rows go of the largest table whose rows all stay; return its name, None if there is none.

        Requires:
            No read is under way, and all frames of contexts over the table are ordered.

        Cost:
            O(tables), and the joins that read the one.
        """
        tables = [one.table for one in self._directory.by_name.values() if one.may_be_paged and one.table.entry_count]
        if not tables:
            return None
        largest = max(tables, key=Table.count_bytes)
        relations, presence = self._directory.page_whole(largest.name)
        self._backed.own(relations, presence).add_whole(largest.prefix, largest.end)
        self._catalog.source_paged(largest)
        return largest.name

    def hold_whole(self, name: bytes) -> None:
        """Note that all rows of a paged table are here; see `Engine.hold_whole`."""
        relations = self._directory.by_name[name]
        table = relations.table
        assert table.is_paged, "others are whole"
        assert not self._backed.absent(table.prefix, table.end), "all of it was taken in"
        self._backed.disown(name)
        self._store.hold_whole(table)
        relations.review()
        self._catalog.source_whole(table)

    def take_in(self, first: bytes, last: bytes, keys: list[bytes], values: list[bytes]) -> list[Range]:
        """Take in the gaps of paged tables in a range; return them. See `Engine.take_in`."""
        self._memory.refuse_beyond(sum(map(len, keys)) + sum(map(len, values)) + ROW * len(keys))
        taken: list[Range] = []
        for forgetter, start, stop in self._backed.clipped(first, last):
            if not forgetter.is_paged:
                continue
            for gap in forgetter.presence.gaps(start, stop, self._memory.reads.number):
                low, high = bisect_left(keys, gap.first), bisect_left(keys, gap.last)
                forgetter.take_in(gap, keys[low:high], values[low:high])
                taken.append(gap)
        return taken

    def hold_taken(self, gaps: Sequence[Range], revision: int) -> None:
        """Make room for ranges that were taken in; if there is none, even after eviction, they go again.

        Raises:
            LimitExceededError: There is no room.
        """
        if self._memory.ledger.limit_bytes >= UNLIMITED:
            return
        self._memory.weigh(revision)
        try:
            self._memory.hold()
        except LimitExceededError:
            for gap in gaps:
                for forgetter, start, stop in self._backed.clipped(*gap):
                    forgetter.forget_paged(start, stop, self._store)
            raise
