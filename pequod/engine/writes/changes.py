"""Changes: from one changed key to everything that depends on it (paper §3.2).

put p|bob|120 --> sites that read p --> value source: eagerly into t|ann|, t|liz|, ...
                                    --> check source: noted in the log of each context
every row that changes so is a change of the next joins' sources: a worklist, no recursion
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from pequod.answers.changes import Change
from pequod.engine.joins import timeline
from pequod.engine.joins.batches import Batch, Told, apply_batch, combine, once, take_frames
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.frames import Updaters
from pequod.engine.joins.hits import Hits
from pequod.engine.joins.installed import InstalledJoin, Site, join_of, materialised_rows
from pequod.engine.joins.plan import Plan
from pequod.engine.joins.projections import Projection, TableReader, is_waiting
from pequod.engine.joins.relations import LooseKeys, Relations
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.ledger import BYTES, LOG_ENTRY
from pequod.engine.memory.story import Reason, Story
from pequod.engine.writes.backfill import Backfill
from pequod.engine.writes.copying import copy_and_tell

#: A context with more entries in its log than this is computed again: by then, the log is about as long as the rows.
LOG_MAX = 10_000


class Writer:
    """Applies changes of source keys to materialised outputs."""

    __slots__ = (
        "_dropping",
        "_hits",
        "_ledger",
        "_memory",
        "_queue",
        "_story",
        "backfills",
        "effects",
        "log_max",
        "serial",
    )

    def __init__(self, memory: Evictor, hits: Hits, story: Story) -> None:
        self._memory = memory
        self._ledger = memory.ledger
        self._hits = hits
        self._story = story
        self.log_max: Final = LOG_MAX
        #: Grows with every change of computed rows that is not the effect of one base key, and with every context
        #: dropped: a read of several sources compares it to see whether their rows are of one moment.
        self.serial = 0
        self._queue: deque[tuple[Sequence[Iterable[Site]], bytes, bytes | None, bytes | None]] = deque()
        #: Contexts to drop before the call ends, with the reasons.
        self._dropping: list[tuple[Context, Reason]] = []
        #: The live backfills, which record old values of source keys; always this list.
        self.backfills: Final[list[Backfill]] = []
        #: The base rows that have changed: values, None for rows that are gone; its owner clears it. None: nobody asks.
        self.effects: dict[bytes, bytes | None] | None = None

    def set_base(
        self, relations: Relations | LooseKeys, key: bytes, value: bytes | None, told: type[Change] = Change
    ) -> bool:
        """Change a base row (None: remove it) and its dependants; return whether the row is another now.

        Args:
            told: What watches are told.
        """
        table = relations.table
        old = table.remove(key) if value is None else table.put(key, value)
        if old == value:
            return False
        if self.effects is not None:
            self.effects[key] = value
        if relations.is_watched:
            relations.tell_stored(told(key, old, value))
        if relations.readers:
            self.base_changed(relations.readers, key, old, value)
        return True

    def set_run(self, relations: Relations, keys: list[bytes], values: list[bytes]) -> int:
        """Set base rows whose keys ascend strictly, as `set_base` does; return how many are others now."""
        if relations.is_watched or self.backfills or any(map(is_waiting, relations.readers)):
            return sum([self.set_base(relations, key, value) for key, value in zip(keys, values, strict=True)])
        changed = relations.table.put_run(keys, values)
        if changed and self.effects is not None:
            self.effects.update(zip(keys, values, strict=True))
        return changed

    def base_changed(self, readers: list[TableReader], key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Bring everything up to date with the change of a base key (None: absent).

        Cost:
            About 0.4 µs for each timeline entry that a post makes (bench row: fan-out).
        """
        if self.backfills:
            self._record(key, old, new)
        self._tell(readers, key, old, new)
        if self._queue or self._dropping:
            self._drain()

    def _tell(self, readers: Iterable[Iterable[Site]], key: bytes, old: bytes | None, new: bytes | None) -> None:
        for sites in readers:
            if type(sites) is Projection:
                self._look(sites, key, old, new)
            else:
                for site in sites:
                    self._apply(site, key, old, new)

    def tell_changed(self, rows: list[tuple[InstalledJoin, Context, bytes, bytes | None, bytes | None]]) -> None:
        """Tell watches and other joins of rows that the core has changed."""
        for row in rows:
            self._emit(*row)
        self._drain()

    def _record(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        for backfill in self.backfills:
            backfill.note(key, old, new)
        if any(backfill.ended is not None for backfill in self.backfills):
            self.backfills[:] = [backfill for backfill in self.backfills if backfill.ended is None]

    def end_backfills(self, first: bytes, last: bytes, reason: str) -> None:
        """End the backfills with a source in a range whose rows are forgotten: later changes of them do not come."""
        if self.backfills:
            for backfill in self.backfills:
                if any(first < source.last and source.first < last for source in backfill.sources):
                    backfill.end(f"rows of its sources are not loaded any more ({reason})")
            self.backfills[:] = [backfill for backfill in self.backfills if backfill.ended is None]

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            self._tell(*queue.popleft())
        for context, reason in self._dropping:
            self.drop(context, reason)
        self._dropping.clear()

    def _look(self, projection: Projection, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Apply the change of a row to the rows that joins see in its values, and to their index."""
        index = projection.index
        if index.rows is None and not projection.is_waiting:
            return
        for shown, was, value in index.take(key, old, new):
            for sites in projection.readers:
                for site in sites:
                    # Natively, a vote takes three quarters of its time (bench row: leaderboard over counts, vote).
                    if site.route is None or not timeline.tell_row(site.route, shown, was, value):
                        self._apply(site, shown, was, value)

    def _apply(self, site: Site, key: bytes, old: bytes | None, new: bytes | None) -> None:
        step = site.step
        if not step.is_value and (old is None) == (new is None):
            return
        match = step.match(key)
        if match is None:
            return
        updaters = site.at(key, match)
        if updaters is None:
            return
        if step.gathered is not None:
            self._dropping += [(context, Reason.DECIDED) for context in updaters.contexts]
        elif not (step.is_value and site.is_last):
            if not step.is_value and old is not None:
                # Only the presence of the key counts.
                old = b""
            # All logs share the object of the old value.
            grows_bytes = LOG_ENTRY + len(key) + (0 if old is None else len(old) // len(updaters.contexts))
            for context in updaters.contexts:
                self._note(context, step.depth, key, old, grows_bytes)
        elif site.is_alike:
            self._fan_out(site.join, updaters, site.tail_of(match), old, new)
        elif site.gives_one_row and new is not None and not site.join.is_followed:
            self._replace(site, updaters, match.groups(), new)
        else:
            self._update(site, updaters, key, match.groups(), old, new)

    def _note(self, context: Context, depth: int, key: bytes, old: bytes | None, grows_bytes: int) -> None:
        count = context.note(depth, key, old, grows_bytes)
        if context.is_fresh:
            self._mark_stale(context)
        if count > self.log_max:
            self._dropping.append((context, Reason.LOGGED))

    def _fan_out(
        self, join: InstalledJoin, updaters: Updaters[Context], tail: bytes, old: bytes | None, new: bytes | None
    ) -> None:
        """Copy one value, or its absence, under ``tail`` into every context."""
        ledger, size = self._ledger, 0
        if old is None:
            size = BYTES + len(tail)
            updaters.tail_bytes += size
        elif new is None:
            size = -min(BYTES + len(tail), updaters.tail_bytes)
            updaters.tail_bytes += size
        if new is not None and join.is_followed and join.spec.keep is None and not join.rivals:
            self._queue += copy_and_tell(join, updaters.contexts, tail, new)
            ledger.fan_out(0, size)
            return
        if new is None or join.is_followed:
            for context in updaters.contexts:
                if context.covers(tail):
                    self._set(join, context, tail, new, 0)
            ledger.fan_out(0, size)
            return
        if join.spec.keep is not None:
            gained = sum([context.append(tail, new, self._story.now_s) for context in updaters.contexts])
        else:
            gained = timeline.apply_write(updaters, tail, new)
        ledger.fan_out(gained, size)

    def _replace(self, site: Site, updaters: Updaters[Context], groups: tuple[bytes, ...], new: bytes) -> None:
        """Copy one value into rows that mostly exist already; the hot loop of a vote on an interleaved page.

        Frames remember the tails of their rows: building a tail and checking that the context covers it took two thirds
        of the time. A row takes 0.4 µs instead of 1.8, 1.0 instead of 3.5 outside the processor's cache (bench row:
        replace).
        """
        join, step, plan = site.join, site.step, site.plan
        for context, waiting in updaters.contexts.items():
            assert waiting is not None, "a step has extras or has none"
            rows = context.rows
            for extras, remembered in waiting.items():
                tail = remembered
                if tail is None:
                    env = context.environment.copy()
                    for group, number in step.bindings:
                        env[number] = groups[group]
                    for number, value in zip(step.extras, extras, strict=True):
                        env[number] = value
                    tail = plan.tail(env)
                own_tail = rows.replace(tail, new)
                if own_tail is not None:
                    if remembered is None:
                        # The row's own key object, which takes no more memory.
                        waiting[extras] = own_tail
                elif context.covers(tail):
                    self._set(join, context, tail, new, BYTES + len(tail))

    def _update(
        self,
        site: Site,
        updaters: Updaters[Context],
        source_key: bytes,
        groups: tuple[bytes, ...],
        old: bytes | None,
        new: bytes | None,
    ) -> None:
        join, step, plan = site.join, site.step, site.plan
        for context, waiting in updaters.contexts.items():
            env = context.environment.copy()
            for group, number in step.bindings:
                env[number] = groups[group]
            for extras in waiting or ((),):
                for number, value in zip(step.extras, extras, strict=True):
                    env[number] = value
                tail = plan.tail(env)
                if not context.covers(tail):
                    continue
                if join.is_unique:
                    row = new if new is None or plan.compose is None else plan.compose(env, new)
                    self._set(join, context, tail, row, BYTES + len(tail) + (0 if row is new else len(row or b"")))
                else:
                    own_key = source_key if plan.own_key is None else plan.own_key(env)
                    for change in context.contribute(join.aggregate, tail, own_key, old, new):
                        self._emit(join, context, *change)

    def _set(self, join: InstalledJoin, context: Context, tail: bytes, new: bytes | None, own_bytes: int) -> None:
        for change in context.place(tail, new, own_bytes):
            self._emit(join, context, *change)
        self.note_short(context)

    def apply(self, join: InstalledJoin, context: Context, batches: Iterable[tuple[int, Batch]]) -> None:
        """Add (sign 1) or remove (sign -1) the results of executions, in their order.

        Ensures:
            All dependants of the changed rows are up to date, or have the change in their log.
        """
        self.serial += 1
        told: Told | None = [] if join.is_followed else None
        for sign, batch in batches:
            apply_batch(context, sign, batch, told)
        self._end(join, context, told if told is None or context.plan.compose is None else once(told))

    def refill(self, join: InstalledJoin, context: Context, parts: Iterable[tuple[bytes, Batch]]) -> None:
        """Take in what was computed of the short groups of a context; the same holds."""
        self.serial += 1
        told: Told = []
        assert context.kept is not None
        for group, batch in parts:
            take_frames(context, batch)
            told += context.kept.refill(context, group, combine(join, batch, {}), is_all=batch.is_all)
        self._end(join, context, told if join.is_followed else None)

    def _end(self, join: InstalledJoin, context: Context, told: Told | None) -> None:
        for change in told or ():
            self._emit(join, context, *change)
        self.note_short(context)
        self._drain()

    def note_short(self, context: Context) -> None:
        """Have the next read compute the groups of a context that lack rows."""
        if context.is_fresh and context.is_short:
            self._mark_stale(context)

    def _emit(self, join: InstalledJoin, context: Context, tail: bytes, old: bytes | None, new: bytes | None) -> None:
        if old == new or not join.is_followed:
            return
        key = context.prefix + tail
        if join.rivals:
            old, new = _as_seen(join, key, old, new)
            if old == new:
                return
        if join.downstreams:
            self._queue.append((join.downstreams, key, old, new))
        if join.watches.count:
            join.watches.tell_computed(key, old, new)

    def _mark_stale(self, context: Context) -> None:
        todo = [context]
        while todo:
            stale = todo.pop()
            if stale.is_fresh:
                stale.go_stale(self._story.now_s)
                watches = join_of(stale).watches
                if watches.count:
                    watches.note_stale(stale)
                if stale.has_dependants:
                    todo += stale.dependants

    def drop(self, context: Context, reason: Reason) -> None:
        """Drop a context, and every context that was computed from it.

        Cost:
            O(frames of what is dropped).
        """
        self.serial += 1
        self.evict(context, reason)

    def absorb(self, contexts: list[Context], plan: Plan) -> bool:
        """Drop contexts of single keys, and of ends of groups, before a wider range around them is computed.

        Otherwise a scan after many gets would leave many small ranges, which each read would have to find and merge;
        and the rest of a group cannot be computed without its end.
        """
        if plan.is_point:
            return False
        narrow = [each for each in contexts if each.is_end or (each.plan.is_point and not each.has_dependants)]
        for context in narrow:
            self.drop(context, Reason.WIDENED)
        return bool(narrow)

    def evict(self, context: Context, reason: Reason) -> None:
        """Do the same to a context that no current read uses; the reads need not begin again."""
        todo = [context]
        while todo:
            dropped = todo.pop()
            if not dropped.is_live:
                continue
            join = join_of(dropped)
            for status in dropped.ranges:
                if join.watches.count:
                    # Its delivered rows are kept for the watches.
                    for watch, first, last in join.watches.over(status.first, status.last):
                        watch.lose(first, last, materialised_rows(join.outputs, first, last))
                self._story.note(join.info.name, status.first, status.last, reason)
                for reader in join.downstreams:
                    if type(reader) is Projection:
                        reader.index.lose(status.first, status.last)
            self._ledger.change_contexts(-1, -len(dropped.ranges), -int(dropped.kept is not None))
            self._memory.leave(dropped)
            join.counters.invalidations += dropped is not context
            join.coverage.drop(dropped)
            if join.contexts.get(dropped.prefix) is dropped:
                del join.contexts[dropped.prefix]
            if dropped.view_last is not None:
                self._hits.forget(dropped.view_last)
            dropped.die()
            if dropped.has_dependants:
                todo += dropped.dependants


def _as_seen(
    join: InstalledJoin, key: bytes, old: bytes | None, new: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Return a change as readers see it if other joins may compute the key: the earliest join's value counts."""
    for rival in join.rivals:
        status = rival.coverage.find(key)
        value = None if status is None else status.context.get(key)
        if value is None:
            continue
        if rival.order < join.order:
            return value, value
        return (value if old is None else old), (value if new is None else new)
    return old, new
