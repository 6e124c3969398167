"""Hits: which contexts answered a read up to some key, so that the next read up to there finds them at once.

    read up to t|ann}          context  t|ann|
    read up to page|ann|7|}    contexts page|ann|7|a, page|ann|7|r, page|ann|7|c|, one for each join over the page

The new rows of a timeline are read from some key to the timeline's end, and only the end is always the same bytes. A
page is always read to its end, too. So a view is found by its end: one look-up instead of finding the table, its joins,
their plans and coverage (bench rows: check, incremental; page, four joins).

A view is a hint: it says which contexts hold a read; `Reader.answer` decides whether they are fresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pequod.answers.rows import Rows
from pequod.engine.base.rows import merge_layers
from pequod.engine.base.table import Table
from pequod.engine.joins.contexts import Context
from pequod.native import core

#: If there are more views of several contexts than this, all are forgotten: some 20 MB, quickly made again. The ledger
#: does not count them.
VIEWS_MAX: Final = 50_000
#: One such view for this many bytes of a limit on memory, if that allows fewer: a fortieth of it.
_LIMIT_BYTES_EACH: Final = 16_384


class View:
    """The contexts that hold all computed rows of a table from ``first``, or any key above it, up to ``last``.

    Invariants:
        1. While its contexts live, they hold what they held when the view was made: status ranges only grow.
        2. ``timeline`` is set only if it is the one context, holds ``[first, last)``, and ends at ``last``.
    """

    __slots__ = ("_several", "first", "last", "table", "timeline")

    def __init__(
        self, table: Table, first: bytes, last: bytes, contexts: tuple[Context, ...], timeline: Context | None
    ) -> None:
        self.table = table
        self.first = first
        self.last = last
        #: Those of a view that is no timeline; a tuple of one for each timeline would be 64 bytes of each.
        self._several = contexts if timeline is None else ()
        #: The context if it alone answers the read, and the last row of the read is its own.
        self.timeline = timeline

    @property
    def contexts(self) -> tuple[Context, ...]:
        """One context for each join that computes keys in the range."""
        return self._several if self.timeline is None else (self.timeline,)

    def rows(self, first: bytes, limit: int | None, *, reverse: bool) -> Rows:
        """Return the rows from ``first`` on, merged with the table's own rows."""
        last, table, timeline = self.last, self.table, self.timeline
        if timeline is not None and not (reverse or table.entry_count):
            return timeline.rows.since(timeline.prefix, first, limit)
        layers = [
            context.slice(first, last, limit, reverse=reverse) for context in self.contexts if first < context.end
        ]
        if table.entry_count:
            layers.insert(0, table.slice(first, last, limit, reverse=reverse))
        return merge_layers(layers, limit, reverse=reverse)


class Ends:
    """Contexts by the ends of reads that each of them alone answers, for batches that run natively."""

    __slots__ = ("_by_last",)

    def __init__(self) -> None:
        self._by_last: dict[bytes, Context] = {}

    def __len__(self) -> int:
        return len(self._by_last)

    def get(self, last: bytes) -> Context | None:
        """Return the context of an end, None if there is none."""
        return self._by_last.get(last)

    def put(self, last: bytes, context: Context, _table: Table) -> None:
        """Set the context of an end, with the table whose keys it computes."""
        self._by_last[last] = context

    def remove(self, last: bytes) -> None:
        """Remove an end; nothing changes if it is not there."""
        self._by_last.pop(last, None)


if not TYPE_CHECKING and core is not None:
    Ends = core.Ends


class Hits:
    """The views of one engine.

    Invariants:
        1. ``by_last`` holds views by their ends, and ``ends`` the contexts of those that are timelines.
        2. A context that dies takes one view with it: the one of which it is the timeline, else the latest that has it.
        Other views with it, which only wide contexts have, cannot answer any more; they are removed when a read
        replaces them.
    """

    __slots__ = ("_several_count", "_several_max", "by_last", "ends")

    def __init__(self, limit_bytes: int) -> None:
        self.by_last: dict[bytes | None, View] = {}
        self.ends = Ends()
        self._several_count = 0
        self.limit(limit_bytes)

    def limit(self, limit_bytes: int) -> None:
        """Set how many views of several contexts are kept, by a limit on memory."""
        self._several_max = min(VIEWS_MAX, limit_bytes // _LIMIT_BYTES_EACH)
        if self._several_count > self._several_max:
            self.clear()

    def remember(self, view: View) -> None:
        """Add a view, in place of the one with its end."""
        present = self.by_last.get(view.last)
        if present is not None:
            self.forget(present.last)
        if view.timeline is None:
            if self._several_count >= self._several_max:
                self.clear()
            if not self._several_max:
                return
            self._several_count += 1
        else:
            self.ends.put(view.last, view.timeline, view.table)
        self.by_last[view.last] = view
        for context in view.contexts:
            known = context.view_last
            if known is None or self.by_last[known].timeline is None or view.timeline is not None:
                context.view_last = view.last

    def forget(self, last: bytes) -> None:
        """Forget the view with this end."""
        view = self.by_last.pop(last)
        if view.timeline is None:
            self._several_count -= 1
        else:
            self.ends.remove(last)
        for context in view.contexts:
            if context.view_last == last:
                context.view_last = None

    def clear(self) -> None:
        """Forget all views: because other joins compute a range now, or there are too many."""
        for view in list(self.by_last.values()):
            self.forget(view.last)

    def _check(self) -> None:
        contexts = {context: None for view in self.by_last.values() for context in view.contexts}
        for context in contexts:
            assert context.view_last is None or context in self.by_last[context.view_last].contexts, "invariant 2"
        assert self._several_count == sum(view.timeline is None for view in self.by_last.values())
        timelines = [view for view in self.by_last.values() if view.timeline is not None]
        assert len(self.ends) == len(timelines), "invariant 1"
        assert all(self.ends.get(view.last) is view.timeline for view in timelines), "invariant 1"
        for last, view in self.by_last.items():
            assert last == view.last, "invariant 1"
            timeline = view.timeline
            if timeline is not None:
                assert timeline.is_live, "invariant 2"
                assert timeline.view_last == last
                assert timeline.end == last
                assert any(status.first <= view.first and status.last == last for status in timeline.ranges)
