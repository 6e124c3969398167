"""The engine: an ordered key-value store whose computed keys keep themselves fresh.

>>> from pequod.engine import Engine, JoinSpec, Operator, Pattern, Slot, Source
>>> user, poster, time = Slot("user"), Slot("poster"), Slot("time", 3)
>>> timeline = JoinSpec(
...     Pattern((b"t|", user, b"|", time, b"|", poster)),
...     (
...         Source(Operator.CHECK, Pattern((b"s|", user, b"|", poster))),
...         Source(Operator.COPY, Pattern((b"p|", poster, b"|", time))),
...     ),
... )
>>> engine = Engine()
>>> _ = engine.add_joins([timeline])
>>> engine.put(b"s|ann|bob", b"1"); engine.put(b"p|bob|100", b"Hi")
>>> engine.scan(b"t|ann|", b"t|ann}")
Rows(keys=[b't|ann|100|bob'], values=[b'Hi'])
>>> engine.put(b"p|bob|120", b"again")
>>> engine.scan(b"t|ann|101", b"t|ann}")
Rows(keys=[b't|ann|120|bob'], values=[b'again'])
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pequod.engine.base.presence import Part
from pequod.engine.base.rows import Rows
from pequod.engine.base.store import Store
from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.hits import Hits
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.relations import Directory
from pequod.engine.joins.watches import Change, Watch
from pequod.engine.memory.eviction import VALUE_STEP, Evictable, Evictor
from pequod.engine.memory.ledger import BYTES, LOG_ENTRY, ROW, UNLIMITED, Ledger
from pequod.engine.memory.story import Dropped, Reason, Story
from pequod.engine.native import NativeBatch, core
from pequod.engine.read import Reads
from pequod.engine.reads.following import Following
from pequod.engine.reads.loading import Loading
from pequod.engine.reads.reader import Reader
from pequod.engine.reads.scans import Scans
from pequod.engine.shown import splits
from pequod.engine.shown.explain import (
    JoinExplanation,
    RangeExplanation,
    explain_coverage,
    explain_dropped,
    explain_join,
)
from pequod.engine.shown.statistics import Statistics, collect
from pequod.engine.writes.admission import PutAdmission
from pequod.engine.writes.backed import Backed
from pequod.engine.writes.catalog import Catalog
from pequod.engine.writes.changes import LOG_MAX, Writer
from pequod.language.missing import MissingError, Search, SearchRange
from pequod.language.ranges import Range
from pequod.language.spec import DELIMITER, JoinSpec


class HotEngine:
    """What quick commands look at in an engine, and change in it."""

    __slots__ = (
        "_ends",
        "_key_bytes_max",
        "_log_entry_bytes",
        "_log_max",
        "_now_s",
        "_reads",
        "_relations",
        "_tail_bytes",
        "_value_bytes_quick",
        "_writer",
        "ledger",
        "revision",
    )


if not TYPE_CHECKING and core is not None:
    HotEngine = core.HotEngine


class Engine(HotEngine):
    """The core: synchronous, deterministic, without I/O and without a clock.

    Requires:
        One thread at a time; the ``now`` of reads (seconds from any origin) never goes backwards.

    Ensures:
        A `scan` or `get` returns exactly what an evaluation of all joins from scratch would, over the present base data
        (for a snapshot join: as it was at one moment within its age). A call that raises changed nothing.

    A table may be *backed*: a database owns its keys. Then clients cannot put its keys. `load` brings in ranges that
    reads need and name with MissingError, `apply` takes the database's changes, and `forget` makes ranges missing
    again.

    Args:
        backed: The names of the backed tables, without the delimiter.
        can_search: Returns whether the database behind them can be asked by other columns than those of its keys.
        memory_limit: The greatest number of bytes of all data. Above it, data that can be made again are evicted, the
            least recently used first; puts and reads that still do not fit are refused.
        priorities: By the names of joins and backed tables, 0 for names that are not given: lower ones are evicted
            first, PINNED never.
    """

    def __init__(
        self,
        *,
        key_bytes_max: int = 4096,
        value_bytes_max: int = 1 << 20,
        backed: Iterable[bytes] = (),
        can_search: Callable[[Search], bool] = lambda _: False,
        memory_limit: int = UNLIMITED,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        #: Grows with every change of base data and of joins, and when a range is invalidated.
        self.revision = 0
        self._key_bytes_max = key_bytes_max
        self._value_bytes_quick = min(value_bytes_max, VALUE_STEP)
        self._store = Store()
        self._directory = Directory(self._store)
        self._relations = self._directory.by_name
        #: The bytes of all data. Code that keeps changes for watches reports them by `Ledger.change_watches`.
        self.ledger = Ledger(memory_limit)
        self._reads = Reads()
        self._memory = Evictor(self.ledger, self._store, key_bytes_max, self._reads, self._drop)
        self._admission = PutAdmission(self._store, self._directory, self._memory, key_bytes_max, value_bytes_max)
        self._hits = Hits(memory_limit)
        self._view_by_last = self._hits.by_last
        self._ends = self._hits.ends
        self._story = Story()
        self._writer = Writer(self._memory, self._hits, self._story)
        self._now_s = 0.0
        self._tail_bytes, self._log_entry_bytes, self._log_max = BYTES, LOG_ENTRY, LOG_MAX
        self._catalog = Catalog(self._directory, self._writer, self._memory, priorities or {}, can_search)
        self._reader = Reader(self._writer, self._memory)
        self._scans = Scans(
            self._store, self._directory, self._catalog, self._writer, self._reader, self._memory, self._hits
        )
        self._backed = Backed(
            self._store,
            self._directory,
            self._catalog,
            self._writer,
            self._memory,
            self._story,
            priorities or {},
        )
        self._following = Following(self._store, self._directory, self._catalog, self._scans)
        #: Takes in ranges of joins that were computed elsewhere.
        self.backfills = Loading(self._catalog, self._writer, self._reader, self._memory)
        for name in backed:
            self._backed.declare(name)

    def put(self, key: bytes, value: bytes) -> None:
        """Write base data: set ``key`` to ``value`` and bring its dependants up to date.

        Raises:
            InvalidKeyError: The key is empty.
            LimitExceededError: The key or the value is too long, or there is no memory for it.
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.

        Cost:
            O(key length), plus 0.4 µs or so for each computed key that changes.
        """
        if not 0 < len(key) <= self._key_bytes_max or len(value) > self._value_bytes_quick:
            self._admission.check_sizes(key, value)
        at = key.find(DELIMITER)
        if at < 0:
            self._admission.make_room(key, value, self.revision)
            self._write_loose(key, value)
            return
        relations = self._relations.get(key[:at])
        if relations is None or relations.is_owned or self.revision >= self.ledger.weigh_at:
            relations = self._admission.admit(key, value, self.revision)
        old = relations.table.put(key, value)
        if old == value:
            return
        self.revision += 1
        if relations.is_watched:
            relations.watches.tell_stored(key, old, value)
        if relations.readers:
            self._writer.base_changed(relations.readers, key, old, value)

    def remove(self, key: bytes) -> bool:
        """Remove base data; return whether the key was there.

        Raises:
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.
        """
        self._admission.check_sizes(key)
        at = key.find(DELIMITER)
        if at < 0:
            old = self._store.remove_loose(key)
            if old is None:
                return False
            self.revision += 1
            self._directory.tell_loose(key, old, None)
            return True
        relations = self._relations.get(key[:at])
        if relations is None:
            return False
        if relations.is_owned:
            self._admission.refuse_owned(relations, key)
        is_there = self._writer.set_base(relations, key, None)
        self.revision += is_there
        return is_there

    def load(self, first: bytes, last: bytes | None, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Load the database's rows of a range: the parts of it in backed tables are loaded from now on.

        They replace the rows that were loaded before. Dependants are told of each row that differs.

        Args:
            rows: All rows of the range that are in backed tables; others are ignored.

        Raises:
            LimitExceededError: There is no memory for it, even after eviction; nothing of the range is loaded now.

        Cost:
            That of the same number of puts, in the order of ``rows``.
        """
        self.revision += self._backed.load(first, last, rows, self._reads.begin())
        if self.ledger.limit_bytes < UNLIMITED:
            self._backed.refuse_overfull(first, last, self.revision)

    def apply(self, key: bytes, value: bytes | None) -> bool:
        """Apply a change of the database: the key's new value, None if it is gone.

        Returns:
            Whether the key lies in a loaded range of a backed table; if not, the change is ignored.
        """
        is_changed = self._backed.apply(key, value)
        if is_changed:
            self.revision += 1
            if value is not None and len(value) > self._value_bytes_quick:
                self.ledger.weigh_sooner(len(value) // VALUE_STEP)
            if self.revision >= self.ledger.weigh_at:
                self.make_room()
        return is_changed is not None

    def forget(self, first: bytes, last: bytes | None) -> None:
        """Forget the loaded rows of a range, and drop everything computed from them; reads will ask for them again.

        Snapshots may still show them until they expire. Watches are told the differences once the range is loaded
        again.

        Cost:
            O(rows forgotten, contexts dropped, and frames of the joins that read the tables).
        """
        self._backed.forget(first, last)

    def forget_some(self, first: bytes, last: bytes | None) -> bool:
        """Forget a part of the range, as `forget` does, in about a millisecond; return whether more may be left.

        The rest of the range may be read meanwhile; a caller who does not want that has to prevent it.

        Cost:
            O(some hundreds of rows and frames, and those of one context).
        """
        return self._backed.forget_some(first, last)

    def load_found(self, searched: SearchRange, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Load some of the rows that a search of the database gave; `note_searched` or `abandon_search` ends it.

        Until then, no other search begins, no change is applied, and no range is forgotten.

        Args:
            searched: Rows that it does not show are ignored.
            rows: Of the same moment as all other loaded rows.

        Raises:
            LimitExceededError: There is no memory for it; the search is to be abandoned.
        """
        self.revision += self._backed.load_found(searched, rows)
        if self.ledger.limit_bytes < UNLIMITED:
            self._backed.make_room(self.revision)

    def note_searched(self, searched: SearchRange) -> None:
        """Note that all rows of a search are loaded: reads of this range of plain keys need no more."""
        self._backed.note_searched(searched, self._reads.begin())

    def abandon_search(self, searched: SearchRange) -> None:
        """Forget what was loaded of a search that has not come to its end; nothing changes if it has."""
        self._backed.abandon_search(searched)

    def release_found(self, searched: SearchRange) -> None:
        """Do for a search what `release` does for a range."""
        self._backed.release_found(searched)

    def release(self, first: bytes, last: bytes | None) -> None:
        """Note that the read for which a range was loaded has been given up: its rows may be evicted like others.

        Rows that were loaded and not read yet are kept for a while, so that reads do not evict what others wait for.
        """
        self._backed.release(first, last)

    def row_bytes(self, rows: Sequence[tuple[bytes, bytes]]) -> int:
        """Return the bytes that rows take when they are loaded."""
        return sum([ROW + len(key) + len(value) for key, value in rows])

    def refuse_rows(self, row_bytes: int) -> None:
        """Refuse a load that would not fit even after eviction, before anything is evicted for a part of it.

        Raises:
            LimitExceededError: There is no memory for ``row_bytes``.
        """
        self._memory.refuse_beyond(row_bytes)

    def part_of(self, key: bytes) -> Range | None:
        """Return a loaded range that holds a key of a backed table; None if the key is not loaded.

        Cost:
            O(log parts): 1 µs.
        """
        part = self._backed.part_of(key)
        return None if part is None else part.range

    def is_followed(self, key: bytes) -> bool:
        """Return whether a change of a key of a backed table may matter: it is loaded, or its table is searched.

        Cost:
            As `part_of`.
        """
        return self._backed.is_followed(key)

    def is_loaded(self, key: bytes) -> bool:
        """Return whether a key of a backed table is loaded.

        Cost:
            As `part_of`.
        """
        return self._backed.part_of(key) is not None

    def reads_backed(self, first: bytes, last: bytes | None) -> bool:
        """Return whether a read of the range shows rows of a backed table, directly or through joins."""
        return self._backed.are_read(first, last)

    def backed_reads(self, first: bytes, last: bytes | None) -> tuple[Range, ...]:
        """Return the ranges of backed tables of which a read of the range may show rows, directly or through joins.

        A join counts with all keys that its sources can have, whatever part of its output is read.
        """
        return self._backed.read_ranges(first, last)

    def back(self, names: Iterable[bytes]) -> None:
        """Declare that databases own the keys of these tables from now on, too.

        What joins have computed from the tables is dropped.

        Raises:
            ValueError: Clients have written keys of a table, or a join computes some; nothing is changed.

        Cost:
            O(contexts of the joins that read the table).
        """
        if self._backed.begin(names):
            self._hits.clear()
            self.backfills.review()
            self.revision += 1

    def loaded(self) -> list[Range]:
        """Return the loaded ranges of the backed tables."""
        return self._backed.loaded()

    def report_forgotten(self) -> None:
        """Keep from now on which loaded ranges are forgotten or evicted, for a caller of `forgotten`."""
        self._backed.report_forgotten()

    def forgotten(self) -> list[Range]:
        """Return the ranges that were forgotten or evicted since the last call; they may be loaded again meanwhile.

        Requires:
            `report_forgotten` has been called; this is called again and again, since they are kept until then.
        """
        return self._backed.take_forgotten()

    def absent(self, first: bytes, last: bytes | None) -> list[Range]:
        """Return the parts of a range, within backed tables, that are not loaded, in order.

        Cost:
            O(parts in the range).
        """
        return self._backed.absent(first, last)

    def base_rows(self) -> Rows:
        """Return all base rows, of clients and of the loaded ranges of backed tables, in key order."""
        return self._backed.without_found(self._store.slice(b"", None))

    @property
    def loaded_range_count(self) -> int:
        """The number of parts in which the loaded ranges are kept; a large range is in several."""
        return self._backed.part_count

    def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write base data, all rows or none: `put` for each, in order, after all have been checked.

        Requires:
            There are as many values as keys.

        Raises:
            InvalidKeyError, LimitExceededError, ComputedKeyError, BackedKeyError: As `put`; nothing is written.

        Cost:
            That of `put` for each row; for ascending keys of tables that are not watched and whose readers have
            materialised nothing, a quarter of it (bench row: put run).
        """
        for name, start, stop in self._admission.admit_all(keys, values, self.revision):
            if name is None:
                self._write_loose(keys[start], values[start])
                continue
            relations = self._directory.at(name)
            if stop - start > 1:
                self.revision += self._writer.set_run(relations, list(keys[start:stop]), list(values[start:stop]))
            else:
                self.revision += self._writer.set_base(relations, keys[start], values[start])

    def owned_by_database(self, key: bytes, value: bytes = b"") -> bool:
        """Return whether a database owns the key, so that a put of it would raise BackedKeyError.

        Raises:
            InvalidKeyError, LimitExceededError, ComputedKeyError: As `put`.
        """
        return self._admission.is_of_database(key, value)

    def remove_range(self, first: bytes, last: bytes | None, limit: int | None = None) -> list[bytes]:
        """Remove the base data of ``[first, last)`` (None: to the end), and return its keys; computed keys stay.

        Args:
            limit: The greatest number of keys, the first of the range.

        Raises:
            BackedKeyError: A database owns keys in the range; nothing is removed.

        Cost:
            That of `remove` for each key.
        """
        if last is not None and first >= last:
            return []
        self._admission.refuse_range(first, last)
        keys = self._store.slice(first, last, limit).keys
        for key in keys:
            self.remove(key)
        return keys

    def run_quick(self, batch: NativeBatch, now: float) -> bool:
        """Run the commands of a native batch that take only a look-up and a copy; return whether one takes more.

        Requires:
            The engine is native, and not ``is_timed``.
        """
        return batch.run(self, now)

    @property
    def is_timed(self) -> bool:
        """Whether the result of reads depends on ``now``: a snapshot join is installed."""
        return self._catalog.is_timed

    def get(self, key: bytes, *, now: float = 0.0) -> bytes | None:
        """Return the value of ``key``, None if it is absent; a computed key is computed if need be.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
        """
        name, delimiter, _ = key.partition(DELIMITER)
        if not delimiter:
            return self._store.loose.get(key)
        relations = self._relations.get(name)
        if relations is None:
            return None
        table = relations.table
        if table.presence is not None and not table.presence.holds(key, key + b"\0", self._reads.begin(now).number):
            raise MissingError((Range(key, key + b"\0"),))
        value = table.get(key)
        if value is not None:
            return value
        if not relations.outputs:
            return None
        read = self._reads.begin(now)
        for join in relations.outputs:
            if join.match_output(key):
                value = self._scans.get(join, key, read)
                if value is not None:
                    return value
        return None

    def scan(
        self,
        first: bytes,
        last: bytes | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        now: float = 0.0,
    ) -> Rows:
        """Return the rows of ``[first, last)`` (None: to the end), computed where joins cover it.

        Args:
            limit: The greatest number of rows, from the end where reading starts.
            reverse: Read from the last key down.
            now: The time, for snapshots.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(rows returned), and about 1 µs more, if the range is materialised.
        """
        view = self._view_by_last.get(last)
        if view is not None and view.first <= first < view.last:
            timeline = view.timeline
            if timeline is not None and now <= timeline.ready_until_s and not (reverse or view.table.entry_count):
                # The new rows of a timeline: the most frequent read needs no record (bench row: check, incremental).
                timeline.join.counters.hits += 1
                reads = self._reads
                reads.number = timeline.last_used = reads.number + 1
                return timeline.rows.since(timeline.prefix, first, limit)
            return self._scans.scan_view(view, first, limit, reverse=reverse, read=self._reads.begin(now))
        at = first.find(DELIMITER)
        relations = self._relations.get(first[:at]) if at > 0 else None
        if relations is None or last is None or not first < last <= relations.table.end:
            return self._scans.scan_any_range(first, last, limit, reverse=reverse, read=self._reads.begin(now))
        if relations.outputs:
            return self._scans.scan_in_table(relations, first, last, limit, reverse=reverse, now=now)
        table = relations.table
        if table.presence is None:
            return table.slice(first, last, limit, reverse=reverse)
        read = self._reads.begin(now)
        if table.presence.holds(first, last, read.number):
            # Bench row: scan, loaded.
            return table.slice(first, last, limit, reverse=reverse)
        return self._scans.scan_any_range(first, last, limit, reverse=reverse, read=read)

    def count(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> int:
        """Return the number of keys that `scan` would return.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(log n) if one join or the store alone has the range, else that of the scan.
        """
        return self._scans.count(first, last, self._reads.begin(now))

    def splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        """Return keys that cut ``[first, last)`` into about ``count`` parts of about equal numbers of rows.

        Rows that are held count: nothing is computed or loaded for it. The keys ascend, and lie above ``first``.

        Cost:
            O(groups and status ranges in the range, some thousands of them at most): a few ms.
        """
        return splits.find(self._store, self._catalog.over(first, last), first, last, count)

    def add_joins(self, specs: Sequence[JoinSpec]) -> list[JoinInfo]:
        """Install joins, all or none; one that is installed already is left as it is.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.

        Cost:
            O(keys of the output tables); dependants of the new joins are computed again when they are read.
        """
        before = set(self._catalog)
        joins, is_new = self._catalog.add(specs)
        self._hits.clear()
        self.backfills.review()
        self.revision += is_new
        for join in self._catalog:
            if join not in before:
                self._directory.end_watches_over(join)
        return joins

    def drop_join(self, name: str) -> None:
        """Drop a join and its outputs.

        Raises:
            UnknownJoinError: No join has this name.
        """
        dropped = self._catalog.find(name)
        self._catalog.drop(name)
        self._hits.clear()
        self.backfills.review()
        self.revision += 1
        self._directory.end_watches_over(dropped)

    def joins(self) -> list[JoinInfo]:
        """Return the installed joins, the earliest first."""
        return [join.info for join in self._catalog]

    def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept.

        Raises:
            UnknownJoinError: No join has this name.
        """
        return explain_join(self._catalog.find(name))

    def explain_range(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and would have to do; nothing is computed."""
        is_empty = last is not None and first >= last
        return RangeExplanation(
            first,
            last,
            0 if is_empty else self._store.count(first, last),
            tuple(
                explain_coverage(join, *join.clip(first, last), now)
                for join in ([] if is_empty else self._catalog.over(first, last))
            ),
            () if is_empty else explain_dropped(self._story.over(first, last), now),
        )

    def watch(self, first: bytes, last: bytes | None, wake: Callable[[], None], *, now: float = 0.0) -> Watch:
        """Follow the changes of ``[first, last)`` (None: to the end), computed keys included.

        Args:
            wake: Called when there is something to `settle`; must not call the engine.

        Raises:
            NotWatchableError: A join over the range is not kept up to date by pushing.
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            That of a scan of the range; later some 3 µs more for each computed row that changes in the table (bench
            row: fan-out, watched).
        """
        return self._following.begin(first, last, wake, self._reads.begin(now))

    def settle(self, watch: Watch, *, now: float = 0.0) -> list[Change]:
        """Bring a watched range up to date and return its changes since the last time, in order.

        A scan of the range now equals the earlier scan with these changes applied. The watch ends if they cannot be
        found, because memory is short, or because a join under it is not kept up to date any more.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded; nothing has been taken.
        """
        return self._following.settle(watch, self._reads.begin(now))

    def unwatch(self, watch: Watch) -> None:
        """End a watch."""
        self._directory.remove_watch(watch)

    def dropped(self, after: int = 0) -> list[Dropped]:
        """Return which ranges were dropped or forgotten, when and why: computed ones, and loaded ones of backed tables.

        Args:
            after: Leave out those up to this number; 0: return all that are kept.

        Returns:
            At most the latest 256, the earliest first. If the first has a higher number than ``after + 1``, the ones in
            between are not kept any more.
        """
        return self._story.since(after)

    def tell_time(self, now: float) -> None:
        """Set the time by which later changes and drops are dated, for `JoinStatistics.age_s` and `dropped`."""
        self._story.now_s = self._now_s = now

    def statistics(self, *, now: float = 0.0) -> Statistics:
        """Return what is stored and materialised, and counts of events so far.

        Cost:
            O(computed rows + contexts): 35 ns a row and 2 us a context.
        """
        steps = self.statistics_in_steps(now=now)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                statistics: Statistics = end.value
                return statistics

    def statistics_in_steps(self, *, now: float = 0.0) -> Generator[None, None, Statistics]:
        """Collect the same in steps of a millisecond or less; between them the engine may be used.

        Yields:
            None, after each step. The statistics are what the generator returns.

        Ensures:
            Rows that change between steps are counted as of some moment, the others exactly.
        """
        return collect(self._store, self._catalog, self.ledger, lambda: self.revision, now)

    def limit_memory(self, limit_bytes: int) -> None:
        """Change the limit; data above it are evicted now, if they can be."""
        self.ledger.limit(limit_bytes)
        self._hits.limit(limit_bytes)
        self.make_room()

    def weigh(self) -> None:
        """Bring the ledger's estimates up to date, unless that costs more than the changes since did.

        Cost:
            O(tables), at most once in a quarter as many changes.
        """
        self._memory.weigh_again(self.revision)

    def make_room(self, spare_bytes: int = 0) -> bool:
        """Evict what is above the limit; return whether it is held now, with ``spare_bytes`` to spare.

        Cost:
            O(tables), and of the victims.
        """
        self._reads.begin()
        self._memory.weigh(self.revision)
        return self._memory.make_room(spare_bytes)

    def evict_ahead(self, goal_bytes: int, step_bytes: int) -> bool:
        """Evict a little, so that calls need not; return whether the goal is not reached and more can be evicted.

        Args:
            goal_bytes: The bytes that all data may take at the end.
            step_bytes: The bytes to evict now, or a little more.
        """
        self._reads.begin()
        return self._memory.shrink_some(goal_bytes, step_bytes)

    def evict(self, count: int) -> int:
        """Drop ``count`` of the least recently used contexts and loaded parts, or a few more; return their number.

        Dependants are dropped as well. Watched and pinned data stay, and so does the data that they depend on.
        """
        self._reads.begin()
        return self._memory.evict_some(count)

    def invalidate(self, first: bytes, last: bytes | None) -> int:
        """Drop the computed rows of a range, and those that they were computed from; reads compute them again.

        Returns:
            The number of contexts; contexts that depend on them were dropped as well.

        Cost:
            O(frames of what is dropped).
        """
        if last is not None and first >= last:
            return 0
        count = self._catalog.invalidate(first, last)
        # So that a watch can distinguish the changes that follow from earlier ones.
        self.revision += bool(count)
        return count

    def drop_snapshots(self, first: bytes, last: bytes | None, since_s: float) -> int:
        """Have the next read of a range take the snapshots anew that were taken before a moment.

        Returns:
            How many there were; contexts that depend on them were dropped as well.

        Cost:
            O(contexts in the range + those with snapshots below them).
        """
        if last is not None and first >= last:
            return 0
        return self._catalog.drop_snapshots(first, last, since_s)

    def invalidate_join(self, name: str) -> int:
        """Drop everything that a join computed, as `invalidate` does.

        Raises:
            UnknownJoinError: No join has this name.
        """
        join = self._catalog.find(name)
        return self.invalidate(join.first, join.last)

    def _drop(self, victim: Evictable) -> None:
        """Drop a victim of eviction."""
        if isinstance(victim, Context):
            self._writer.evict(victim, Reason.EVICTED)
        elif isinstance(victim, Index):
            victim.drop()
        else:
            assert isinstance(victim, Part), "nothing else is evicted"
            self._backed.evict(victim)

    def _write_loose(self, key: bytes, value: bytes) -> None:
        old = self._store.put_loose(key, value)
        if old != value:
            self.revision += 1
            self._directory.tell_loose(key, old, value)

    def _check(self) -> None:
        self._store._check()
        self._directory._check()
        self._catalog._check()
        self.backfills._check()
        self._memory._check()
        self._catalog._check_ledger()
        assert self.ledger.part_count == self._backed.part_count
        self._backed._check()
        self._hits._check()
        self._story._check()
