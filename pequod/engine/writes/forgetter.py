"""Forgets the loaded ranges of one table and its searched ones, with everything that was computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from pequod.engine.base import presence
from pequod.engine.base.deadlines import Deadlines
from pequod.engine.base.parts import Parts
from pequod.engine.base.presence import Part, Presence
from pequod.engine.base.store import Store
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.projections import Projection
from pequod.engine.joins.relations import Relations
from pequod.engine.joins.searched import Searched
from pequod.engine.memory.eviction import HELD, Evictor, Rank
from pequod.engine.memory.story import Reason, Story
from pequod.engine.writes.changes import Writer
from pequod.engine.writes.removal import forget_searched, remove_rows
from pequod.language.ranges import Range

#: Rows, and frames of contexts, that are forgotten in one step between other calls: 1 µs each or so.
FORGOTTEN_MAX: Final = 512
#: Parts that are made of a large one in one step.
_CUTS_MAX: Final = 8
#: The last use of a large part in the order of eviction: only pieces come before it of which no use is known.
_LARGE: Final = 1


class Forgetter(Parts):
    """Forgets loaded ranges of one table, on request or when memory is short."""

    __slots__ = ("_deadlines", "_name", "_relations", "_story", "_table", "_writer", "forgotten")

    def __init__(
        self,
        name: str,
        relations: Relations,
        loaded: Presence,
        writer: Writer,
        memory: Evictor,
        story: Story,
        priority: int,
        deadlines: Deadlines,
    ) -> None:
        super().__init__(loaded, memory, priority)
        self._name = name
        self._deadlines = deadlines
        self._story = story
        self._relations = relations
        self._table = relations.table
        self._writer = writer
        #: Takes the ranges that are forgotten, if they are asked for.
        self.forgotten: list[Range] | None = None

    def forget(self, first: bytes, last: bytes, reason: Reason = Reason.FORGOTTEN) -> None:
        """Forget the loaded rows of a range, and drop everything that was computed from them.

        Rows that searched ranges show stay. The caller sees to the searched ranges.
        """
        self._writer.end_backfills(first, last, reason)
        for context in self.dependants(first, last):
            self._writer.evict(context, reason)
        watches = self._relations.watches
        if watches.count:
            watches.note_forgotten(first, last)
        keys = self._table.slice(first, last).keys
        for part in self.remove(first, last).gone:
            start, stop = max(first, part.first), min(last, part.last)
            self._story.note(self._name, start, stop, reason)
            if self.forgotten is not None:
                self.forgotten.append(Range(start, stop))
        remove_rows(self._relations, keys, self.memory.ledger, self._deadlines)

    @property
    def is_paged(self) -> bool:
        """Whether a disk has the rows that are not here."""
        return self._table.is_paged

    def rank(self, part: Part) -> Rank | None:
        """Return the place of a part in the order of eviction; one that writes made large comes first, to be cut."""
        rank = super().rank(part)
        if rank is HELD or not self.is_paged or not self._is_large(part):
            return rank
        return rank[0], _LARGE, rank[2]

    def _is_large(self, part: Part) -> bool:
        return self._table.has_more(part.first, part.last, 2 * presence.PART_ROWS_MAX)

    def part_from(self, part: Part, store: Store) -> None:
        """Forget a part of a paged table; if it is a large one, cut it instead.

        Of pieces of a part that has still more rows, nobody knows when they were used: they go before it is cut again.

        Cost:
            That of `forget`; of a large part, O(`_CUTS_MAX` parts).
        """
        if self._is_large(part):
            size = presence.PART_ROWS_MAX
            keys = self._table.slice(part.first, part.last, (_CUTS_MAX + 2) * size + 1).keys[size::size]
            self.cut(part, keys[:_CUTS_MAX], 0 if len(keys) > _CUTS_MAX + 1 else part.last_used)
            return
        if not self.drop_some(part):
            self.forget_paged(part.first, part.last, store)

    def take_in(self, gap: Range, keys: list[bytes], values: list[bytes]) -> None:
        """Take in the rows of a gap: nothing was computed from them, or watched there."""
        self._table.put_run(keys, values)
        self.add(gap.first, gap.last, keys)

    def forget_paged(self, first: bytes, last: bytes, store: Store) -> None:
        """Forget rows of a range that a disk has, and their deadlines; those that it has not yet are kept for it."""
        if store.deadlines:
            effects = self._writer.effects or {}
            for key, at_ms in store.deadlines.among(self._table.slice(first, last).keys):
                store.deadlines.remove(key)
                store.away_first_ms = min(store.away_first_ms, at_ms)
                if key in effects:
                    store.away_deadlines[key] = at_ms
        self.forget(first, last, Reason.EVICTED)

    def forget_searched(self, one: Searched, first: bytes, last: bytes, reason: Reason) -> None:
        """Forget that a range was searched, with the rows that are there for it alone, and what was computed of it."""
        for context in one.dependants(first, last):
            self._writer.evict(context, reason)
        forget_searched(self._relations, one, first, last, self.memory.ledger, self._deadlines)

    def forget_searches(self) -> None:
        """Forget all searched ranges of the table: any row may have come to show in any of them, or be gone."""
        for one in [one for one in self._relations.searched if one.presence]:
            self.forget_searched(one, self._table.prefix, self._table.end, Reason.FORGOTTEN)

    def forget_some(self, first: bytes, last: bytes) -> bool:
        """Forget some of the loaded rows of a range, or drop a dependant; return whether more may be left.

        All searched ranges of the table are forgotten first.

        Requires:
            The range is not empty.

        Cost:
            O(FORGOTTEN_MAX) rows or frames, and those of one context.
        """
        for one in self._relations.searched:
            part = next(iter(one.presence), None)
            if part is not None:
                if not self._drop_some(one, part.first, part.last):
                    self.forget_searched(one, part.first, part.last, Reason.FORGOTTEN)
                return True
        part = self.presence.first_over(first, last)
        if part is None:
            return False
        first, last = max(first, part.first), min(last, part.last)
        rows = self._table.slice(first, last, FORGOTTEN_MAX + 1)
        if len(rows.keys) > FORGOTTEN_MAX:
            last = rows.keys[-1]
        if not self._drop_some(self, first, last):
            self.forget(first, last)
        return True

    def drop_some(self, part: Part) -> bool:
        """Drop dependants of a part that is to be forgotten, if they are very many; return whether they were.

        The part stays for now: an eviction that has freed enough by them ends here, and another one goes on.
        """
        return self._drop_some(self, part.first, part.last, Reason.EVICTED)

    def _drop_some(
        self, parts: Forgetter | Searched, first: bytes, last: bytes, reason: Reason = Reason.FORGOTTEN
    ) -> bool:
        """Drop dependants of a range up to FORGOTTEN_MAX frames or so; return whether that many were reached."""
        frame_count = 0
        for context in list(islice(parts.waiting(first, last), FORGOTTEN_MAX)):
            frame_count += context.updaters_count
            self._writer.evict(context, reason)
            if frame_count >= FORGOTTEN_MAX:
                return True
        return False

    def dependants(self, first: bytes, last: bytes) -> Iterable[Context]:
        """Return the contexts that wait for changes in a range, perhaps with others."""
        return dict.fromkeys(self.waiting(first, last))

    def waiting(self, first: bytes, last: bytes) -> Iterator[Context]:
        """Yield the contexts that wait for changes in a range, perhaps with others; some more than once.

        Those that depend on searched ranges are not among them.
        """
        for reader in self._relations.readers:
            if isinstance(reader, Projection) and reader.index.searched is not None:
                continue
            for site in reader:
                yield from site.within(first, last)

    def is_watched(self, first: bytes, last: bytes) -> bool:
        """Return whether watches hold rows of a range."""
        return self._relations.watches.are_over(first, last)
