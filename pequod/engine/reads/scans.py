"""Reads of any range, over tables and joins: bring the joins' rows up to date, and merge them with the stored rows.

    any range        [p|, t|bob})    store   p|bob|100  p|liz|120  s|ann|bob ...
                                     joins   t: ensure [t|, t|bob})      karma: pulled
    in one table     [t|ann|100, t|ann|200)   its joins' contexts of level one, if each holds the range
    up to one end    [t|ann|300, t|ann})      the contexts that answered an earlier read up to this end (`hits`)

The first way is right for every read. The others find the same rows sooner, or give up: then the first way reads them.
"""

from __future__ import annotations

from typing import Final

from pequod.answers.rows import Rows
from pequod.engine.base.rows import merge_layers
from pequod.engine.base.store import Store
from pequod.engine.joins.collecting import collect
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.hits import Hits, View
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.relations import Directory, Relations
from pequod.engine.memory.eviction import Evictor
from pequod.engine.read import Read
from pequod.engine.reads import execution
from pequod.engine.reads.reach import reach
from pequod.engine.reads.reader import Reader
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.language.errors import LimitExceededError
from pequod.language.missing import MissingError
from pequod.language.spec import DELIMITER

#: A read of no more rows goes through what a disk has in small parts, of this number of slices of a gap at the most.
_ROWS_IN_PARTS: Final = 128
_SLICES_IN_PARTS: Final = 16
#: How many reads may come between the slices that a read waits for and its next attempt.
_READS_MEANWHILE: Final = 100


class Scans:
    """Reads of ranges, and the parts of them that other calls use."""

    __slots__ = ("_catalog", "_directory", "_hits", "_memory", "_reader", "_reads", "_store", "_writer")

    def __init__(
        self,
        store: Store,
        directory: Directory,
        catalog: Catalog,
        writer: Writer,
        reader: Reader,
        memory: Evictor,
        hits: Hits,
    ) -> None:
        self._store = store
        self._directory = directory
        self._catalog = catalog
        self._writer = writer
        self._reader = reader
        self._memory = memory
        self._reads = memory.reads
        self._hits = hits

    def scan(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, now: float) -> Rows:
        """Return the rows of ``[first, last)``; see `Engine.scan`."""
        view = self._hits.by_last.get(last)
        if view is not None and view.first <= first < view.last:
            return self._scan_view(view, first, limit, reverse=reverse, read=self._reads.begin(now))
        # The look-up of `Directory.find` without its call (bench row: scan, loaded).
        at = first.find(DELIMITER)
        related = self._directory.by_name.get(first[:at]) if at > 0 else None
        if related is None or last is None or not first < last <= related.table.end:
            return self.scan_any_range(first, last, limit, reverse=reverse, read=self._reads.begin(now))
        table = related.table
        if table.presence is None and not related.outputs:
            return table.slice(first, last, limit, reverse=reverse)
        read = self._reads.begin(now)
        if related.outputs:
            return self._scan_in_table(related, first, last, limit, reverse=reverse, read=read)
        if table.presence is not None and table.presence.holds(first, last, read.number):
            return table.slice(first, last, limit, reverse=reverse)
        return self.scan_any_range(first, last, limit, reverse=reverse, read=read)

    def scan_any_range(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, read: Read) -> Rows:
        """Return the rows of ``[first, last)``, by the way that fits every read."""
        if last is not None and first >= last:
            return Rows([], [])
        if limit is None or reverse:
            return self._scan_whole(first, last, limit, reverse=reverse, read=read)
        # Contexts are brought up to date only up to the limit: a large scan in pieces must not look at all of them for
        # each piece (bench row: scan in pieces). Rows may disappear meanwhile; then the read goes further.
        wanted, slices = limit, 1
        if limit and self._catalog.over(first, last):
            # Stored rows are there without a look at contexts, of which thousands may have no rows.
            stored = self._store.slice(first, last, limit).keys
            last = stored[-1] + b"\0" if len(stored) == limit else last
        if limit <= _ROWS_IN_PARTS and any(table.is_paged for table in self._store.backed):
            return self._scan_in_parts(first, last, limit, read)
        has_room = True
        while True:
            bound = self._reach(first, last, read, wanted, slices)
            try:
                rows = self._scan_whole(first, bound, limit, reverse=False, read=read)
            except LimitExceededError:
                if not has_room or self._store.backed:
                    # Of backed tables, rows are dropped that the read needs: it would load them again for ever.
                    raise
                # The refusal has dropped what earlier pieces have left of these contexts: this one alone may fit.
                has_room, read = False, self._begin_anew(read)
                continue
            if bound == last or len(rows.keys) >= limit:
                return rows
            wanted, slices = 2 * wanted, 2 * slices

    def _scan_in_parts(self, first: bytes, last: bytes | None, limit: int, read: Read) -> Rows:
        """Return the first rows of a range, each part of which is brought up to date by itself."""
        read.in_parts, slices, found = True, 1, Rows([], [])
        while True:
            wanted = limit - len(found.keys)
            bound = self._reach(first, last, read, wanted, slices)
            rows = self._scan_whole(first, bound, wanted, reverse=False, read=read)
            found.keys.extend(rows.keys)
            found.values.extend(rows.values)
            if bound == last or bound is None or len(found.keys) >= limit:
                return found
            # Keys say where slices end, and come for that alone. Where memory is short, few rows are wanted.
            first, slices = bound, min(2 * slices, _SLICES_IN_PARTS, max(1, limit // 2))

    def _begin_anew(self, read: Read) -> Read:
        """Begin a call again, so that what its first attempt used may be evicted.

        What was computed in slices for it is still computed at once if it is gone: more slices would be in vain.
        """
        begun = self._reads.begin(read.now)
        for join in self._catalog:
            if join.computed_until == read.number:
                join.computed_until = begun.number
        return begun

    def _reach(self, first: bytes, last: bytes | None, read: Read, row_count: int, slices: int) -> bytes | None:
        """Return how far to read for ``row_count`` rows, over gaps by slices; see `reach`.

        Raises:
            MissingError: Keys that say so are not here.
        """
        for join in self._catalog.over(first, last):
            start, stop = join.clip(first, last)
            if start < stop and (bound := reach(join, start, stop, read, row_count, slices)) < stop:
                last = bound
        self.refuse_missing(read)
        return last

    def _scan_whole(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, read: Read) -> Rows:
        layers = [self._store.slice(first, last, limit, reverse=reverse)]
        joins = self._catalog.over(first, last)
        pulled = self.bring_up(joins, first, last, read, limit, reverse=reverse)
        for join in joins:
            start, stop = join.clip(first, last)
            if join in pulled:
                layers.append(_ordered(pulled[join], reverse=reverse))
            else:
                layers.append(join.coverage.slice(start, stop, limit, reverse=reverse))
        return merge_layers(layers, limit, reverse=reverse)

    def bring_up(
        self,
        joins: list[InstalledJoin],
        first: bytes,
        last: bytes | None,
        read: Read,
        limit: int | None = None,
        *,
        reverse: bool = False,
    ) -> dict[InstalledJoin, Rows]:
        """Materialise a range of joins and bring it up to date; return the rows of the joins that keep nothing.

        Args:
            limit: How many rows the read shows at most; None: all.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
            LimitExceededError: Its rows do not fit into memory.
        """
        while True:
            read.begin_again(self._writer.serial)
            pulled = {}
            for join in joins:
                start, stop = join.clip(first, last)
                if join.is_pull:
                    pulled[join] = self._reader.pull(join, start, stop, read)
                else:
                    self._reader.ensure(join, start, stop, read)
            if self._store.backed:
                read.lack(self._store.lacking(first, last, read.number, limit, reverse=reverse))
            self.refuse_missing(read)
            if read.serial == self._writer.serial:
                return pulled

    def compute(self, first: bytes, last: bytes, read: Read) -> bytes | None:
        """Compute a slice of a range that a read lacks; return where the next one begins, None if it was the last.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
            LimitExceededError: Its rows do not fit into memory.
        """
        joins = [join for join in self._catalog.over(first, last) if not join.is_pull]
        end = last
        for join in joins:
            start, stop = join.clip(first, last)
            if start < stop and (cut := reach(join, start, stop, read)) < stop:
                end = min(end, cut)
        self.refuse_missing(read)
        for join in joins:
            join.computed_until = read.number
        self.bring_up(joins, first, end, read)
        if end < last:
            return end
        for join in joins:
            # If memory has no room for all of it, what is gone again is computed at once: more slices would be in vain.
            join.computed_until = read.number + _READS_MEANWHILE
        return None

    def refuse_missing(self, read: Read) -> None:
        """Raise MissingError with all that a read lacks, if it lacks anything."""
        if read.missing:
            self._memory.wait(read)
            raise MissingError(read.missing, read.next_groups)

    def refresh(self, contexts: dict[Context, None], read: Read) -> dict[Context, None]:
        """Bring contexts up to date; return those that need missing ranges, which are noted in the read."""
        read.begin_again(self._writer.serial)
        for context in contexts:
            context.last_used = read.number
        return {context: None for context in contexts if not self._reader.refresh(context, read) and context.is_live}

    def get(self, join: InstalledJoin, key: bytes, read: Read) -> bytes | None:
        """Return the value of a key that a join may compute, None if it does not."""
        end = key + b"\0"
        context = join.holder(key, end)
        if context is None or not self._reader.answer((context,), read):
            pulled = self.bring_up([join], key, end, read)
            if join in pulled:
                return pulled[join].values[0] if pulled[join].values else None
            context = join.holder(key, end)
            assert context is not None, "it has just been materialised"
        return context.get(key)

    def _scan_in_table(
        self, related: Relations, first: bytes, last: bytes, limit: int | None, *, reverse: bool, read: Read
    ) -> Rows:
        """Return the rows of a range inside a table, and remember the contexts that hold them.

        Requires:
            ``[first, last)`` is not empty and lies in the table, and joins compute keys of the table.
        """
        if len(related.outputs) == 1 and not (reverse or related.table.entry_count):
            join = related.outputs[0]
            prefix = join.level_one_prefix(first)
            if prefix is not None and prefix not in join.contexts:
                timeline = self.fill_timeline(join, prefix, first, last, read)
                if timeline is not None:
                    if last != timeline.end:
                        return timeline.slice(first, last, limit)
                    self._hits.remember(View(related.table, timeline.first, timeline.end, (timeline,), timeline))
                    return timeline.rows.since(prefix, first, limit)
        rows = self._scan_level_one(related, first, last, limit, reverse=reverse, read=read)
        if rows is None:
            rows = self.scan_any_range(first, last, limit, reverse=reverse, read=read)
            self._remember(related, first, last)
        elif len(related.outputs) == 1:
            self._remember(related, first, last)
        return rows

    def fill_timeline(
        self, join: InstalledJoin, prefix: bytes, first: bytes, last: bytes, read: Read
    ) -> Context | None:
        """Materialise a range of which nothing is materialised yet, for a timeline without a context.

        It does what `Reader.ensure` does, with a fifth of the steps (bench row: check, first).

        Args:
            prefix: That of the context of level one.

        Returns:
            The context, which is ready; None if the case is not plain: then `Reader.ensure` has to do it.

        Raises:
            LimitExceededError: Its rows do not fit into memory.
        """
        if not (join.is_quiet and join.is_push) or join.spec.keep is not None:
            return None
        opened = join.open_plan(prefix, first, last)
        if opened is None:
            plan, environment, known = join.plan_for(first, last)
            if known != prefix or last > plan.end_of(prefix):
                return None
        else:
            plan, environment = opened
        # Of contexts of one level no other has a part of this one's range.
        is_gap = len(join.plans) == 1 or join.coverage.is_gap(first, last)
        if plan.log_kernel is None or not is_gap:
            return None
        context = join.make_context(plan, environment, prefix)
        row_count = collect(context, first, last, execution.ROWS_AT_A_TIME)
        if row_count is None:
            return None
        join.contexts[prefix] = context
        self._reader.cover(context, first, last, read)
        join.count_computed(row_count, self._reads)
        self._memory.hold()
        return context if context.is_ready(read.now) else None

    def _scan_level_one(
        self, related: Relations, first: bytes, last: bytes, limit: int | None, *, reverse: bool, read: Read
    ) -> Rows | None:
        """Return the rows of a range inside a table, if each of its joins has them in one context of level one.

        Joins that are computed on every read are computed. That is half of their cost otherwise, and there is nothing
        to remember for the next read (bench row: pull, celebrity).

        Returns:
            None if a join does not have the range in one such context, or if a range is missing.
        """
        kept: list[Context] = []
        for join in related.outputs:
            if join.is_pull:
                continue
            context = join.level_one(first)
            if context is None or not context.holds(first, last):
                return None
            kept.append(context)
        if not self._reader.answer(kept, read):
            return None
        read.begin_again(self._writer.serial)
        pulled = {
            join: self._reader.pull(join, *join.clip(first, last), read) for join in related.outputs if join.is_pull
        }
        if read.missing or read.serial != self._writer.serial:
            return None
        layers = [related.table.slice(first, last, limit, reverse=reverse)] if related.table.entry_count else []
        for join in related.outputs:
            if join.is_pull:
                layers.append(_ordered(pulled[join], reverse=reverse))
            else:
                layers.append(kept.pop(0).slice(first, last, limit, reverse=reverse))
        return merge_layers(layers, limit, reverse=reverse)

    def _scan_view(self, view: View, first: bytes, limit: int | None, *, reverse: bool, read: Read) -> Rows:
        """Return the rows from ``first`` on to the end of a view."""
        if self._reader.answer(view.contexts, read):
            return view.rows(first, limit, reverse=reverse)
        if len(view.contexts) == 1 and view.contexts[0].is_live:
            # It has all of the range, so nothing else can be missing.
            self.refuse_missing(read)
        rows = self.scan_any_range(first, view.last, limit, reverse=reverse, read=read)
        self._remember(self._directory.by_name[view.table.name], first, view.last)
        return rows

    def _remember(self, related: Relations, first: bytes, last: bytes) -> None:
        """Remember the contexts that answered a read inside a table, if each of its joins has its rows in one of them.

        Requires:
            The range is materialised and fresh.
        """
        context = related.outputs[0].level_one(first)
        if len(related.outputs) == 1 and context is not None and context.holds(first, last):
            # This read is fast already, but found by its end it is faster still.
            if last == context.end:
                self._hits.remember(View(related.table, first, last, (context,), context))
            return
        contexts: list[Context] = []
        for join in related.outputs:
            if join.is_pull:
                return
            start, stop = join.clip(first, last)
            if start >= stop:
                continue
            plan, _, prefix = join.plan_for(start, stop)
            start, stop = max(start, prefix), min(stop, plan.end_of(prefix))
            if start >= stop and len(related.outputs) > 1:
                continue
            context = join.holder(start, stop) if start < stop else None
            if context is None:
                # In several contexts: a large scan in pieces would find thousands of them for each piece. Or no key can
                # be there: a view of no context would hide one that comes to hold the range (pequod/native/verbs.cpp).
                return
            contexts.append(context)
        timeline = None
        if len(related.outputs) == 1 and contexts and contexts[0].end == last:
            # Reads that begin below the context's prefix are not among those that are found by their end.
            begin = max(first, contexts[0].prefix)
            # Above the greatest value of a slot with a width there is no key, and the range of a context may end there.
            if contexts[0].holds(begin, last):
                timeline, first = contexts[0], begin
        self._hits.remember(View(related.table, first, last, tuple(contexts), timeline))


def _ordered(rows: Rows, *, reverse: bool) -> Rows:
    return Rows(rows.keys[::-1], rows.values[::-1]) if reverse else rows
