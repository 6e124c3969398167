"""Loading: takes in ranges of a join that were computed elsewhere, while the sources go on changing.

    begin    note the revision R and record the old values of changed source keys                (`backfill`)
    load     the rows of a range that follow from the sources at R:
               run the nested loops over the sources at R, down to the value source, for the frames
               take the rows in; apply what changed since
               only then let reads see the range: covered, fresh, with its updaters
    end      forget the record; the loaded rows stay

Loading is a read whose value source was read elsewhere: its effects are those of a read. It is done in one call, on a
context that no read finds before it is right, so no write, read or watch has to know of it.

A range that is materialised already, by a reader or an earlier load, stays as it is. So loads may come in any order,
twice, or never.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from operator import le, lt

from pequod.answers.rows import Rows
from pequod.engine.joins.aggregates import NeverAddedError, State
from pequod.engine.joins.batches import apply_batch, take_frames
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.memory.eviction import Evictor
from pequod.engine.memory.ledger import BYTES
from pequod.engine.read import Read
from pequod.engine.reads.as_of import SourcesAsOf
from pequod.engine.reads.differences import differences
from pequod.engine.reads.execution import Execution
from pequod.engine.reads.reader import Reader
from pequod.engine.writes.backfill import Backfill, LoadCounts, Piece
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import Writer
from pequod.escapes import shown
from pequod.language.containing import containing_range
from pequod.language.errors import InvalidPieceError, NotBackfillableError, PequodError, UnknownJoinError
from pequod.language.missing import Lacking, MissingError, Unindexed
from pequod.language.ranges import Range, lower
from pequod.language.slots import fix_slots
from pequod.language.spec import Operator


class Loading:
    """The backfills of an engine.

    Invariants:
        1. Exactly the backfills that have not ended record the changes of base rows.
    """

    __slots__ = ("_catalog", "_memory", "_reader", "_writer", "loaded")

    def __init__(self, catalog: Catalog, writer: Writer, reader: Reader, memory: Evictor) -> None:
        self._catalog = catalog
        self._writer = writer
        self._reader = reader
        self._memory = memory
        #: The result of all backfills so far.
        self.loaded = LoadCounts()

    def __iter__(self) -> Iterator[Backfill]:
        return iter(self._writer.backfills)

    def begin(
        self, name: str, first: bytes, last: bytes | None, revision: int, *, level: int | None, record_bytes_max: int
    ) -> Backfill:
        """Begin a backfill of the outputs of a join in ``[first, last)`` (None: to the end).

        Args:
            name: The name of the join.
            first: The first key.
            last: The end of the range.
            revision: The present revision of the engine.
            level: The number of the output's slots that a context fixes; None for one, as a timeline is read.
            record_bytes_max: The backfill ends when its record is larger.

        Raises:
            UnknownJoinError: No join has this name.
            NotBackfillableError: The join cannot be backfilled, or has no outputs in the range.
            MissingError: Ranges of the sources that a database owns are not loaded, or indexes are not made.
        """
        join = self._catalog.find(name)
        _refuse_unfit(join)
        stop = lower(last, join.last)
        assert stop is not None
        bounds = Range(max(first, join.first), stop)
        if not bounds.first < bounds.last:
            end = "the end" if last is None else shown(last)
            raise NotBackfillableError(name, f"it computes nothing between {shown(first)} and {end}")
        plan = join.plan_at(_level_of(join, level))
        if plan.cap is not None:
            bounds = plan.cap.widen(*bounds)
        sources = [Range(*containing_range(join.spec, source.pattern, *bounds)) for source in join.spec.sources]
        read = self._memory.reads.begin()
        lacking: list[Lacking] = [*_not_loaded(join, sources, read.number), *self._not_made(join)]
        if lacking:
            self._memory.wait(read)
            raise MissingError(lacking)
        backfill = Backfill(join, plan, bounds, revision, sources, record_bytes_max)
        self._writer.backfills.append(backfill)
        return backfill

    def load(self, backfill: Backfill, pieces: Sequence[Piece], *, now: float = 0.0) -> LoadCounts:
        """Take in pieces; ranges that are materialised already are skipped.

        Raises:
            BackfillEndedError: The backfill has ended, or rows of its sources were evicted for those that were loaded;
                the pieces before were taken in.
            InvalidPieceError: A piece is malformed, and none was taken in; or one cannot follow from the sources at the
                backfill's revision, and those before it were taken in.
            LimitExceededError: A piece does not fit into memory, even after eviction; those before it were taken in.

        Cost:
            About 0.3 µs for each row, and the time for the rows of the check sources and for the changes since the
            begin.
        """
        backfill.refuse_ended()
        placed = [(piece, _place(backfill, piece)) for piece in pieces]
        loaded = LoadCounts()
        for piece, environment in placed:
            # Each piece is a read of its own: the next one may evict it.
            read = self._memory.reads.begin(now)
            read.is_whole = True
            prefix = backfill.plan.prefix(environment)
            contexts = [status.context for status in backfill.join.coverage.over(piece.first, piece.last)]
            self._writer.absorb(contexts, backfill.plan)
            gaps = backfill.join.coverage.gaps(piece.first, piece.last)
            loaded.skipped_count += not gaps
            for bounds in gaps:
                self._freshen(backfill.join.contexts.get(prefix), read)
                # Loading takes memory, for which rows of its sources may have been evicted.
                backfill.refuse_ended()
                context = backfill.join.make_context(backfill.plan, environment, prefix)
                try:
                    self._make(backfill, context, bounds, piece, read)
                    self._show(backfill.join, context, bounds, read)
                except BaseException:
                    context.die()
                    raise
                loaded.range_count += 1
                loaded.row_count += len(context.rows)
                self._memory.hold()
        backfill.loaded.add(loaded)
        self.loaded.add(loaded)
        return loaded

    def end(self, backfill: Backfill, reason: str) -> None:
        """End a backfill; the rows that were loaded stay."""
        backfill.end(reason)
        self.remove_ended()

    def _not_made(self, join: InstalledJoin) -> list[Unindexed]:
        """Return the indexes of a join's sources that its pieces need, and that take longer than a slice."""
        # What the first source has was read elsewhere, with the fields that lead to the others.
        sources = () if self._reader.at_once else join.indexes[1:]
        found = [index for index in sources if index is not None and index.lens.view.is_indexed]
        return [Unindexed(index.lens.view) for index in found if index.takes_slices]

    def review(self) -> None:
        """End the backfills whose join was dropped, or cannot be backfilled any more."""
        for backfill in list(self):
            try:
                is_there = self._catalog.find(backfill.join.info.name) is backfill.join
            except UnknownJoinError:
                is_there = False
            if not is_there:
                backfill.end("the join was dropped")
                continue
            try:
                _refuse_unfit(backfill.join)
            except PequodError as error:
                backfill.end(str(error))
            if _not_loaded(backfill.join, backfill.sources, self._memory.reads.number):
                backfill.end("a database owns some of its sources now")
        self.remove_ended()

    def remove_ended(self) -> None:
        """Stop recording for backfills that have ended."""
        self._writer.backfills[:] = [backfill for backfill in self if backfill.ended is None]

    def _check(self) -> None:
        for backfill in self:
            assert backfill.ended is None, "invariant 1"
            backfill._check()

    def _make(self, backfill: Backfill, context: Context, bounds: Range, piece: Piece, read: Read) -> None:
        """Fill a context with the rows of ``bounds`` that are right now; no read finds it yet."""
        join = backfill.join
        present = self._reader.sources(join, read)
        sources = SourcesAsOf(backfill, present)
        execution = Execution(
            backfill.plan, context.environment.copy(), *bounds, sources, is_unique=join.is_unique, has_frames=True
        )
        take_frames(context, execution.run())
        context.aim(*bounds)
        _take_rows(backfill, context, bounds, piece, backfill.copied(sources.frame_prefixes))
        found = differences(context, sources.changed, present)
        try:
            for sign, batch in found:
                apply_batch(context, sign, batch, None)
        except NeverAddedError as error:
            reason = f"they are not those of the sources at revision {backfill.revision}"
            raise InvalidPieceError(piece.first, piece.last, reason) from error

    def _freshen(self, present: Context | None, read: Read) -> None:
        """Bring the context that is to take over another one up to date, or drop it."""
        if present is not None and not present.is_fresh:
            self._reader.refresh(present, read)

    def _show(self, join: InstalledJoin, context: Context, bounds: Range, read: Read) -> None:
        """Let a context that is right answer reads; if there is one with its prefix, that one takes it over."""
        present = join.contexts.get(context.prefix)
        if present is None:
            join.contexts[context.prefix] = present = context
        else:
            present.take_over(context)
        self._reader.cover(present, *bounds, read)
        self._writer.note_short(present)


def _level_of(join: InstalledJoin, level: int | None) -> int:
    """Return how many slots of the output the contexts of a backfill fix.

    Raises:
        NotBackfillableError: They cannot be as many as a client wants.
    """
    spec, name = join.spec, join.info.name
    slot_count = len(dict.fromkeys(slot.name for slot in spec.output.slots()))
    most = slot_count if spec.keep is None else len(spec.keep.slots)
    if level is None:
        return min(1, max(0, slot_count - 1), most)
    if not 0 <= level <= slot_count:
        raise NotBackfillableError(name, f"its output has {slot_count} slots, so that a read cannot fix {level}")
    if level > most:
        raise NotBackfillableError(name, f"its groups are those of {most} slots, and what is loaded has whole groups")
    return level


def _place(backfill: Backfill, piece: Piece) -> list[bytes]:
    """Return the environment of the context of a piece.

    Raises:
        InvalidPieceError: It fits no context, or is malformed.
    """
    refuse = partial(InvalidPieceError, piece.first, piece.last)
    join, plan = backfill.join, backfill.plan
    if not backfill.first <= piece.first < piece.last <= backfill.last:
        raise refuse(f"they are not within the backfill's range, {shown(backfill.first)} .. {shown(backfill.last)}")
    values = fix_slots(join.spec.output, piece.first, piece.last)
    if len(values) < plan.level:
        raise refuse(f"they fix {len(values)} slots of the output, and the backfill is for reads that fix {plan.level}")
    environment = plan.environment(values[: plan.level])
    prefix = plan.prefix(environment)
    if not prefix <= piece.first < piece.last <= plan.end_of(prefix):
        raise refuse(f"they are not all of the prefix {shown(prefix)}")
    if plan.widen(piece.first, piece.last, prefix) != (piece.first, piece.last):
        raise refuse("they have a part of a group, and the join keeps some rows of each group")
    tails, operator = piece.tails, join.spec.value_source.operator
    lengths = {
        "values": (piece.values, operator is not Operator.COUNT),
        "times": (piece.times, not join.is_unique),
        "source_keys": (piece.source_keys, operator is Operator.COPY and not join.is_unique),
    }
    for name, (column, is_wanted) in lengths.items():
        if len(column) != (len(tails) if is_wanted else 0):
            raise refuse(f"there are {len(tails)} tails and {len(column)} {name}")
    if not tails:
        return environment
    if not all(map(lt if join.is_unique else le, tails, tails[1:])):
        raise refuse("the tails do not ascend")
    if prefix + tails[0] < piece.first or prefix + tails[-1] >= piece.last:
        raise refuse("some lie outside of that range")
    if piece.times and min(piece.times) < 1:
        raise refuse("some contribute less than once")
    return environment


def _take_rows(
    backfill: Backfill, context: Context, bounds: Range, piece: Piece, copied: dict[bytes, bytes | None]
) -> None:
    """Put the rows of a piece within ``bounds`` into an empty context, with the changes of copies since."""
    length = len(context.prefix)
    start = bisect_left(piece.tails, bounds.first[length:]) if bounds.first > context.prefix else 0
    stop = len(piece.tails) if bounds.last >= context.end else bisect_left(piece.tails, bounds.last[length:])
    tails, values = list(piece.tails[start:stop]), list(piece.values[start:stop])
    if backfill.join.is_unique:
        value_bytes = context.plan.value_bytes(values)
        if context.kept is None:
            context.take_rows(*_lay_over(Rows(tails, values), context, copied), value_bytes)
            return
        context.kept.fill_cut(context, Rows(tails, values), value_bytes)
        for tail, value in copied.items():
            if context.covers(tail):
                context.place(tail, value, BYTES + len(tail))
        return
    aggregate = backfill.join.aggregate
    states: dict[bytes, State | None] = {}
    columns = zip(
        tails,
        values or repeat(b""),
        piece.source_keys[start:stop] or repeat(b""),
        piece.times[start:stop],
        strict=False,
    )
    for tail, value, source_key, times in columns:
        states[tail] = aggregate.add(states.get(tail), source_key, value, times)
    context.take_states(aggregate, {tail: state for tail, state in states.items() if state is not None}, stop - start)
    results = {tail: aggregate.result(state) for tail, state in context.aggregate_states.items()}
    shown = {tail: value for tail, value in results.items() if value is not None}
    rows = Rows(list(shown), list(shown.values()))
    if context.kept is None:
        context.take_rows(*rows, aggregate.value_bytes)
    else:
        context.kept.fill(context, rows, aggregate.value_bytes, is_all=True)


def _lay_over(rows: Rows, context: Context, copied: dict[bytes, bytes | None]) -> Rows:
    """Return rows with the changes of copies since (None: gone) that the context covers."""
    if context.lower or context.upper is not None:
        copied = {tail: value for tail, value in copied.items() if context.covers(tail)}
    if not copied:
        return rows
    tails = sorted(copied)
    if rows.keys and tails[0] <= rows.keys[-1]:
        found: dict[bytes, bytes | None] = dict(zip(rows.keys, rows.values, strict=True))
        copied = found | copied
        tails = sorted(copied)
        rows = Rows([], [])
    found_values = [copied[tail] for tail in tails]
    if None in found_values:
        tails = [tail for tail in tails if copied[tail] is not None]
    return Rows(rows.keys + tails, rows.values + [value for value in found_values if value is not None])


def _refuse_unfit(join: InstalledJoin) -> None:
    """Refuse a join whose rows cannot be computed from the base rows of one moment, or that keeps none."""
    refuse = partial(NotBackfillableError, join.info.name)
    if not join.is_push:
        raise refuse(
            f"it is declared or computed as `{'pull' if join.is_pull else join.spec.maintenance}`, not as push"
        )
    if any(join.upstreams):
        raise refuse("joins compute some of its sources; the server computes it when it is read, as a scan of it does")
    if join.spec.has_records and any(table.presence is not None for table in join.source_tables):
        raise refuse("it looks at the fields of values that a database owns; a scan of it computes it")
    if join.value_depth != len(join.spec.sources) - 1:
        raise refuse(f"its value source is not the last one; declare it with `{join.spec.value_source}` last")


def _not_loaded(join: InstalledJoin, sources: Sequence[Range], read_number: int) -> list[Range]:
    """Return what is not loaded of sources that a database owns; what is loaded of them counts as used.

    Changes of rows that are not loaded do not come, so that a backfill could not catch up with them.
    """
    return [
        gap
        for table, source in zip(join.source_tables, sources, strict=True)
        if table.presence is not None
        for gap in table.presence.gaps(*source, read_number)
    ]
