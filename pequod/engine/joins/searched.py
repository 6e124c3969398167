"""Searched ranges: parts of an index whose rows the database gave, asked by other columns than those of the key.

    table   article|  . . . [=7=) . . [=9=)                rows 7 and 9 stand alone: their range is not loaded
    index   article|  . . [article|bob| == article|bob})   all rows whose author is bob are in the table: 7, 9

A row of the table is there because its own range is loaded, or because a searched range shows it, or both. The contexts
that read the index depend on searched ranges alone; where the own range of all rows is loaded, so is any range here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pequod.engine.base.parts import Parts
from pequod.engine.base.presence import Presence
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.projections import Projection
from pequod.engine.memory.eviction import Evictor
from pequod.language.missing import Search, SearchRange
from pequod.language.ranges import Range
from pequod.language.records import Shown


class Searched(Parts):
    """The searched ranges of one index.

    Invariants:
        1. Every row of the database that shows a plain key in a searched range is in the table.
    """

    __slots__ = ("_projection", "arriving", "index", "search")

    def __init__(self, search: Search, projection: Projection, memory: Evictor, priority: int) -> None:
        super().__init__(Presence(), memory, priority)
        self.search = search
        self.index: Index = projection.index
        self._projection = projection
        #: The range of which a part of the rows is there: its rows stay, and no read uses it yet.
        self.arriving: Range | None = None

    def dependants(self, first: bytes, last: bytes) -> Iterable[Context]:
        """Return the contexts that wait for plain rows of a range, perhaps with others."""
        return dict.fromkeys(self.waiting(first, last))

    def waiting(self, first: bytes, last: bytes) -> Iterator[Context]:
        """Yield the contexts that `dependants` returns one by one, some more than once."""
        for site in self._projection:
            yield from site.within(first, last)

    def is_watched(self, first: bytes, last: bytes) -> bool:  # noqa: ARG002 - that of all parts
        """Return False: watches hold contexts, and those hold what they depend on."""
        return False

    def gaps(self, first: bytes, last: bytes, read_number: int) -> list[SearchRange]:
        """Return the parts of a range that have to be searched for a read.

        None have to be if all rows of the table that the index looks at are loaded.
        """
        gaps = self.presence.gaps(first, last, read_number)
        own = self.index.table.presence
        if gaps and (own is None or not own.holds(*self.index.range, read_number)):
            return [SearchRange(*gap, self.search) for gap in gaps]
        for gap in gaps:
            self.note(gap)
        return []

    def note(self, gap: Range) -> None:
        """Note that all rows of a range that was not searched are in the table."""
        self.add(*gap, self.index.seen(*gap).keys)

    def shows(self, shown: Shown) -> bool:
        """Return whether one of the plain keys lies in a range that is searched, or arriving."""
        arriving = self.arriving
        if arriving is not None and any(arriving.first <= key < arriving.last for key in shown):
            return True
        return any(self.presence.has(key) for key in shown)

    @property
    def has_rows(self) -> bool:
        """Whether rows of the table may be there for its ranges."""
        return bool(self.presence) or self.arriving is not None


def are_held(searched: Iterable[Searched], key: bytes, value: bytes) -> bool:
    """Return whether a row of the table is shown by a searched range."""
    return any(one.has_rows and one.shows(one.index.look(key, value)) for one in searched)
