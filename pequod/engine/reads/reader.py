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

from bisect import bisect_left
from collections.abc import Sequence

from pequod.answers.rows import Rows
from pequod.engine.base.range_map import gaps_between
from pequod.engine.joins.aggregates import State
from pequod.engine.joins.batches import Batch, combine, take_frames
from pequod.engine.joins.collecting import apply_log
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin, join_of
from pequod.engine.joins.plan import Plan
from pequod.engine.memory.eviction import PINNED, Evictor
from pequod.engine.memory.story import Reason
from pequod.engine.read import Read
from pequod.engine.reads.differences import differences
from pequod.engine.reads.execution import Execution
from pequod.engine.reads.reach import is_long
from pequod.engine.reads.sources import RecordReader, SourceReader
from pequod.engine.writes.changes import Writer
from pequod.language.missing import Uncomputed
from pequod.language.ranges import Range


class Reader:
    """Answers reads over installed joins."""

    __slots__ = ("at_once", "memory", "writer")

    def __init__(self, writer: Writer, memory: Evictor, *, at_once: bool) -> None:
        self.writer = writer
        self.memory = memory
        #: Whether reads do what takes long at once; else they lack indexes and rows that take more than a slice.
        self.at_once = at_once

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
        first, last = self._to_keep(join, plan, first, last, prefix)
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
                if self._lacks(join, gaps, read):
                    return None
                if not self.writer.absorb(contexts, plan):
                    # All gaps before looking again, which is useless if there were many. Filling one leaves the others:
                    # no join reads its own output.
                    for gap in gaps:
                        if not self.fill(join, join.make_context(plan, environment, prefix), *gap, read):
                            lacking.add(gap)
                    # If the range was one gap, it is all one range now.
                    if not ranges and (filled := join.holder(first, last)) is not None and filled.is_ready(read.now):
                        return [filled]
            was_ready = False

    def _lacks(self, join: InstalledJoin, gaps: list[Range], read: Read) -> bool:
        """Return whether gaps are to be computed slice by slice before they are read, and note that."""
        if self.at_once or read.is_whole or read.in_parts:
            return False
        if read.number <= join.computed_until:
            # The slices are there for one read: the next one that finds them gone has them made again.
            join.computed_until = read.number
            return False
        before = len(read.missing)
        for gap in gaps:
            if is_long(join, gap, read):
                read.lack([Uncomputed(*gap)])
        return len(read.missing) > before

    def _to_keep(self, join: InstalledJoin, plan: Plan, first: bytes, last: bytes, prefix: bytes) -> Range:
        """Return the range to materialise for a read: of a group whose last rows are kept, the end if that does.

        It does as long as all reads of the context have asked for no more than the first of them. Another read drops
        the context (`Writer.absorb`), and has the whole group computed.
        """
        whole = Range(*plan.widen(first, last, prefix))
        if not (plan.reads_ends and join.is_push):
            return whole
        needed = Range(*plan.needed(first, last, prefix))
        if needed == whole or (join.coverage.over(*whole) and join.coverage.gaps(*needed)):
            return whole
        return needed

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
        bounds = plan.needed(first, last, prefix)
        while True:
            sources = self.sources(join, read)
            batch = Execution(
                plan,
                environment.copy(),
                *bounds,
                sources,
                is_unique=join.is_unique,
                has_frames=False,
                wanted=plan.cap.count if plan.cap is not None and plan.reads_ends else None,
            ).run()
            if sources.is_lacking or sources.is_steady:
                break
        if reader is not None:
            reader.is_lacking |= sources.is_lacking
            for context in sources.upstreams:
                reader.depend_on(context)
        rows = combine(join, batch, {})
        join.count_computed(len(rows.keys), self.memory.reads)
        if plan.cap is None:
            return Rows([prefix + tail for tail in rows.keys], rows.values)
        rows = plan.cap.cut(prefix, rows)
        keys = [prefix + tail for tail in rows.keys]
        start, stop = bisect_left(keys, first), bisect_left(keys, last)
        return Rows(keys[start:stop], rows.values[start:stop])

    def fill(self, join: InstalledJoin, context: Context, first: bytes, last: bytes, read: Read) -> bool:
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
        batch = self._compute(context, first, last, sources)
        if sources.is_lacking:
            return False
        if not sources.is_steady:
            return True
        states: dict[bytes, State] = {}
        rows = combine(join, batch, states)
        aggregate = join.aggregate
        value_bytes = context.plan.value_bytes(rows.values) if join.is_unique else aggregate.value_bytes
        if context.kept is not None:
            context.kept.fill(context, rows, value_bytes, is_all=batch.is_all)
        else:
            cap = context.plan.cap
            context.take_rows(*(rows if cap is None else cap.cut(context.prefix, rows)), value_bytes)
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
        self.memory.hold(made=context)
        return True

    def cover(self, context: Context, first: bytes, last: bytes, read: Read) -> None:
        """Let a range of a context, whose rows are there, answer reads from now on.

        Requires:
            No status range overlaps ``[first, last)``.
        """
        memory, join = self.memory, join_of(context)
        context.last_used = read.number
        if not context.ranges:
            memory.ledger.change_contexts(1, 0, int(context.kept is not None))
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
            # Fan-outs may have appended rows to a full group.
            context.cut()
            if context.kept is not None and not (context.log or context.is_short):
                context.settle()
            elif apply_log(context, read.number):
                self.writer.serial += 1
                context.settle()
            elif not self._take(context, read):
                return False
            self.memory.make_room()
        return context.is_live and context.is_fresh

    def _take(self, context: Context, read: Read) -> bool:
        """Apply the log of a context, or else compute its short groups; return False if a range is missing."""
        join = join_of(context)
        sources = self.sources(join, read)
        if context.log or not context.is_short:
            batches = differences(context, context.log, sources)
            if sources.is_steady and not sources.is_lacking:
                self._settle(context, sources)
                self.writer.apply(join, context, batches)
        else:
            parts = [(group, self._compute(context, *bounds, sources)) for group, bounds in context.short_groups()]
            if sources.is_steady and not sources.is_lacking:
                self._settle(context, sources)
                self.writer.refill(join, context, parts)
        return not sources.is_lacking

    def _compute(self, context: Context, first: bytes, last: bytes, sources: SourceReader) -> Batch:
        """Return the contributions to a range of a context, or those to the rows that it keeps."""
        plan = context.plan
        wanted = plan.cap.wanted if plan.cap is not None and plan.reads_ends else None
        return Execution.of(context, first, last, sources, wanted=wanted).run()

    def _settle(self, context: Context, sources: SourceReader) -> None:
        context.settle()
        context.depend_on(sources.upstreams, sources.expires_s)
