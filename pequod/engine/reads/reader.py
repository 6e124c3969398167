"""Reads: bring a range up to date, compute its gaps, return its rows (paper §3.1-§3.3).

    ensure   a range of one join: drop expired contexts, apply logs, fill gaps     until nothing is left to do
    refresh  a context: first its upstream contexts, then its own log, deepest source first
    fill     a gap: run the plan, then take in its rows and frames

An execution may itself bring sources up to date, which may change rows that it has already read.
`SourceReader.is_steady` detects this: the execution is then discarded and runs again, and finds its sources fresh.

Ranges of backed tables may not be loaded, indexes not made. An execution notes those that it meets in `Read.missing`,
continues where it can, and is discarded at the end, as are those that need its result: so all are known at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.base.range_map import gaps_between
from pequod.engine.base.rows import merge_layers
from pequod.engine.joins.aggregates import State
from pequod.engine.joins.batches import combine, take_frames
from pequod.engine.joins.collecting import apply_log
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.indexes import Gaps, Index
from pequod.engine.joins.installed import InstalledJoin, join_of
from pequod.engine.joins.timeline import Around
from pequod.engine.memory.eviction import PINNED, Evictor
from pequod.engine.memory.story import Reason
from pequod.engine.read import Read
from pequod.engine.reads import execution
from pequod.engine.reads.differences import differences
from pequod.engine.reads.execution import Execution
from pequod.engine.reads.plain import read_indexed, read_shown
from pequod.engine.writes.changes import Writer
from pequod.language.missing import NextGroups, Unindexed
from pequod.language.narrowing import Narrowed
from pequod.language.ranges import Range, prefix_end


class SourceReader:
    """Reads the sources of one join for one execution, and notes the contexts that it depends on."""

    __slots__ = ("_join", "_read", "_reader", "_serial", "expires_s", "is_lacking", "upstreams")

    def __init__(self, reader: Reader, join: InstalledJoin, read: Read) -> None:
        self._reader = reader
        self._join = join
        self._read = read
        self._serial = reader.writer.serial
        #: Contexts whose rows were read, and the first moment at which one of them expires.
        self.upstreams: dict[Context, None] = {}
        self.expires_s = inf
        #: Whether a range that was read is not loaded: then the result of the execution is useless.
        self.is_lacking = False

    @property
    def is_steady(self) -> bool:
        """Whether no computed row has changed since the execution began, so that all rows read are of one moment."""
        return self._serial == self._reader.writer.serial

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows of a source that start with ``prefix`` and continue in ``[first, last)``.

        Computed rows are brought up to date first. The caller only reads the rows, and only until its next call.
        """
        table = self._join.source_tables[source]
        if table.presence is not None:
            self._look_for(table.presence, prefix, first, last)
        base = table.slice_within(prefix, first, last)
        upstreams = self._join.upstreams[source]
        if not upstreams:
            return base
        start = prefix + first
        stop = prefix_end(prefix) if last is None else prefix + last
        assert stop is not None, "a table name has an end"
        if start >= stop:
            return base
        layers = [base]
        for upstream in upstreams:
            if upstream.is_pull:
                layers.append(self._reader.pull(upstream, start, stop, self._read, self))
                continue
            holder = upstream.holder(start, stop)
            if holder is not None and self._reader.answer((holder,), self._read):
                self.depend_on(holder)
                layers.append(holder.slice(start, stop))
                continue
            contexts = self._reader.ensure(upstream, start, stop, self._read)
            if contexts is None:
                self.is_lacking = True
                continue
            for context in contexts:
                self.depend_on(context)
            layers.append(upstream.coverage.slice(start, stop))
        return merge_layers(layers)

    def groups(self, source: int, around: Around, prefixes: list[bytes], narrowed: Narrowed) -> Groups | None:
        """Return the groups of the source's table by their prefixes; see `Sources`."""
        join, table = self._join, self._join.source_tables[source]
        if join.upstreams[source] or join.indexes[source] is not None or not table.has_groups(*around, prefixes):
            return None
        if table.presence is not None:
            for prefix in prefixes:
                self._look_for(table.presence, prefix, *narrowed)
        return table.groups

    def look_ahead(self, source: int, prefix: bytes, around: Around, narrowed: Narrowed) -> None:
        """Note which groups of a backed table the read lacks next, if it lacks anything now; see `Sources`."""
        is_plain = not self._join.upstreams[source] and self._join.indexes[source] is None
        if self.is_lacking and is_plain and self._join.source_tables[source].presence is not None:
            self._read.next_groups.append(NextGroups(prefix, *around, *narrowed))

    def make_room(self, tails: list[bytes]) -> int:
        """Make room for contributions to rows with these tails; see `Evictor.room_for`."""
        return self._reader.memory.room_for(tails, execution.ROWS_AT_A_TIME)

    def _look_for(self, known: Gaps, prefix: bytes, first: bytes, last: bytes | None) -> bool:
        """Return whether all rows that start with ``prefix`` and continue in a range are there; note what is not."""
        start, stop = prefix + first, prefix_end(prefix) if last is None else prefix + last
        assert stop is not None, "a table name has an end"
        gaps = known.gaps(start, stop, self._read.number) if start < stop else []
        if gaps:
            self._read.lack(gaps)
            self.is_lacking = True
        return not gaps

    def depend_on(self, context: Context) -> None:
        """Note that rows of ``context`` were read."""
        self.upstreams[context] = None
        self.expires_s = min(self.expires_s, context.expires_s)

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one source key, None if it is absent."""
        table = self._join.source_tables[source]
        if self._join.upstreams[source] or table.presence is not None:
            rows = SourceReader.read(self, source, key, b"", b"\0")
            return rows.values[0] if rows.keys else None
        return table.get(key)


class RecordReader(SourceReader):
    """Reads the sources of a join that sees plain rows in records."""

    __slots__ = ()

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the plain rows of a source, or the rows of a source that does not look at values."""
        index = self._join.indexes[source]
        if index is None:
            return super().read(source, prefix, first, last)
        searched = index.searched
        if not first and last == b"\0" and searched is None:
            value = self.get(source, prefix)
            return Rows([], []) if value is None else Rows([prefix], [value])
        if index.lens.view.is_indexed and not self._join.upstreams[source]:
            # Before a search: what is found by one is looked up in the index.
            if searched is not None and self._lacks(index):
                return Rows([], [])
            if (presence := index.table.presence) is not None:
                is_all = searched is None or (prefix == index.table.prefix and not first and last is None)
                if (is_all and not self._look_for(presence, b"", *index.range)) or (
                    searched is not None and not self._look_for(searched, prefix, first, last)
                ):
                    return Rows([], [])
            if self._lacks(index):
                return Rows([], [])
            if (rows := read_indexed(index, prefix, first, last, self._read.number)) is not None:
                return rows
        read = partial(super().read, source) if searched is None else index.table.slice_within
        return read_shown(index, prefix, first, last, read)

    def _lacks(self, index: Index) -> bool:
        """Return whether an index is to be made slice by slice before it is read, and note that."""
        if self._reader.indexes_at_once or self._read.is_whole or not index.takes_slices:
            return False
        self._read.lack([Unindexed(index.lens.view)])
        self.is_lacking = True
        return True

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one plain row, None if it is absent."""
        if (index := self._join.indexes[source]) is None:
            return super().get(source, key)
        own_key = index.lens.own_key(key)
        return None if own_key is None else index.look(own_key, super().get(source, own_key)).get(key)


class Reader:
    """Answers reads over installed joins."""

    __slots__ = ("indexes_at_once", "memory", "writer")

    def __init__(self, writer: Writer, memory: Evictor, *, indexes_at_once: bool) -> None:
        self.writer = writer
        self.memory = memory
        #: Whether reads have the indexes that they need made at once; else they lack those that take more than a slice.
        self.indexes_at_once = indexes_at_once

    def sources(self, join: InstalledJoin, read: Read) -> SourceReader:
        """Return where one execution reads the sources of a join."""
        return (RecordReader if join.spec.has_records else SourceReader)(self, join, read)

    def answer(self, contexts: Sequence[Context], read: Read) -> bool:
        """Bring the contexts of a read up to date; return whether they may answer it now.

        This is the one place that decides when a context may answer: it lives, has not expired, and is fresh or has a
        log that can be applied. `Context.ready_until_s` is its answer for a context with nothing to apply; where one
        context has the range, the core looks at this alone (pequod/native/verbs.cpp).

        Cost:
            O(contexts), and applying their logs.
        """
        now, is_ready = read.now, True
        for context in contexts:
            context.last_used = read.number
            if context.ready_until_s < now:
                if context.expires_s < now:
                    return False
                is_ready = False
        if not is_ready:
            for context in contexts:
                if not (context.is_fresh or self.refresh(context, read)):
                    return False
            if len(contexts) > 1 and not all(context.is_ready(now) for context in contexts):
                # Refreshing one has dropped another, or has added entries to its log.
                return False
        for context in contexts:
            context.join.counters.hits += 1
            context.hits += 1
        return True

    def ensure(self, join: InstalledJoin, first: bytes, last: bytes, read: Read) -> list[Context] | None:
        """Materialise ``[first, last)`` of a join and bring it up to date, except for missing ranges of its sources.

        Returns:
            The contexts that hold it; None if a range is missing.

        Cost:
            O(log ranges + contexts) if there is nothing to do.
        """
        plan, environment, prefix = join.plan_for(first, last)
        first, last = max(first, prefix), min(last, plan.end_of(prefix))
        if first >= last:
            return []
        was_ready = True
        lacking: set[Context | Range] = set()
        while True:
            ranges = join.coverage.over(first, last)
            contexts = list(dict.fromkeys([status.context for status in ranges]))
            if self._freshen(contexts, lacking, read):
                gaps = [gap for gap in gaps_between(ranges, first, last) if gap not in lacking]
                if not gaps:
                    join.counters.hits += was_ready
                    return None if lacking else contexts
                if not self.writer.absorb(contexts, plan):
                    # All gaps before looking again, which is useless if there were many. Filling one leaves the others:
                    # no join reads its own output.
                    for gap in gaps:
                        if not self._fill(join, join.make_context(plan, environment, prefix), *gap, read):
                            lacking.add(gap)
                    # If the range was one gap, it is all one range now.
                    if not ranges and (filled := join.holder(first, last)) is not None and filled.is_ready(read.now):
                        return [filled]
            was_ready = False

    def _freshen(self, contexts: list[Context], lacking: set[Context | Range], read: Read) -> bool:
        """Bring each context up to date once; return whether there was nothing to do."""
        was_fresh = True
        for context in contexts:
            context.last_used = read.number
            if not context.is_live:
                was_fresh = False
            elif context.has_expired(read.now):
                self.writer.drop(context, Reason.EXPIRED)
                was_fresh = False
            elif not context.is_fresh and context not in lacking:
                if not self.refresh(context, read) and context.is_live:
                    lacking.add(context)
                was_fresh = False
        return was_fresh

    def pull(
        self, join: InstalledJoin, first: bytes, last: bytes, read: Read, reader: SourceReader | None = None
    ) -> Rows:
        """Compute ``[first, last)`` of a join and keep nothing; the rows are incomplete if a range is missing."""
        plan, environment, prefix = join.plan_for(first, last)
        while True:
            sources = self.sources(join, read)
            work = Execution(plan, environment.copy(), first, last, sources, is_unique=join.is_unique, has_frames=False)
            batch = work.run()
            if sources.is_lacking or sources.is_steady:
                break
        if reader is not None:
            reader.is_lacking |= sources.is_lacking
            for context in sources.upstreams:
                reader.depend_on(context)
        tails, values = combine(join, batch, {})
        join.count_computed(len(tails), self.memory.reads)
        return Rows([prefix + tail for tail in tails], values)

    def _fill(self, join: InstalledJoin, context: Context, first: bytes, last: bytes, read: Read) -> bool:
        """Materialise a gap, or do one step towards it; the caller looks again.

        Returns:
            Whether there was progress; if not, a range is missing.
        """
        if join.is_push:
            context = join.contexts.get(context.prefix, context)
            context.last_used = read.number
            if context.has_expired(read.now):
                self.writer.drop(context, Reason.EXPIRED)
                return True
            if not context.is_fresh:
                # The log is about present rows of the context; new rows would be right already.
                return self.refresh(context, read) or not context.is_live
        sources = self.sources(join, read)
        batch = Execution(
            context.plan,
            context.environment.copy(),
            first,
            last,
            sources,
            is_unique=join.is_unique,
            has_frames=join.is_push,
        ).run()
        if sources.is_lacking:
            return False
        if not sources.is_steady:
            return True
        states: dict[bytes, State] = {}
        rows = combine(join, batch, states)
        aggregate = join.aggregate
        context.take_rows(rows.keys, rows.values, 0 if join.is_unique else aggregate.value_bytes)
        if join.is_push:
            join.contexts[context.prefix] = context
            if states:
                context.take_states(aggregate, states, len(batch.tails))
            take_frames(context, batch)
            context.depend_on(sources.upstreams, sources.expires_s)
        else:
            context.expire_by(join.expires_s(read.now))
        self.cover(context, first, last, read)
        join.count_computed(len(rows.keys), self.memory.reads)
        self.memory.hold()
        return True

    def cover(self, context: Context, first: bytes, last: bytes, read: Read) -> None:
        """Let a range of a context, whose rows are there, answer reads from now on.

        Requires:
            No status range overlaps ``[first, last)``.
        """
        memory, join = self.memory, join_of(context)
        context.last_used = read.number
        if not context.ranges:
            memory.ledger.change_contexts(1, 0)
            if join.priority < PINNED:
                memory.enter(context, (join.priority, read.number, 0))
        range_count = len(context.ranges)
        join.coverage.add(first, last, context)
        memory.ledger.change_contexts(0, len(context.ranges) - range_count)

    def refresh(self, context: Context, read: Read) -> bool:
        """Bring a context up to date: its upstream contexts, then its own log.

        Returns:
            Whether it is fresh; otherwise it was dropped, or it lives and a range is missing.
        """
        context.last_used = read.number
        while context.is_live and not context.is_fresh:
            if context.has_upstreams and (stale := [each for each in context.upstreams if not each.is_fresh]):
                lacking = [upstream for upstream in stale if not self.refresh(upstream, read) and upstream.is_live]
                if lacking and context.is_live:
                    return False
                continue
            if apply_log(context, read.number):
                self.writer.serial += 1
                context.settle()
            else:
                join = join_of(context)
                sources = self.sources(join, read)
                batches = differences(context, context.log, sources)
                if sources.is_lacking:
                    return False
                if not sources.is_steady:
                    continue
                context.settle()
                context.depend_on(sources.upstreams, sources.expires_s)
                self.writer.apply(join, context, batches)
            self.memory.make_room()
        return context.is_live and context.is_fresh
