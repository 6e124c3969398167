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

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import islice
from operator import lt
from typing import Final

from pequod.engine import splits
from pequod.engine.catalog import Catalog
from pequod.engine.changes import Changes
from pequod.engine.errors import (
    BackedKeyError,
    ComputedKeyError,
    InvalidKeyError,
    LimitExceededError,
    MissingError,
    NotWatchableError,
)
from pequod.engine.explain import JoinExplanation, RangeExplanation, explain_coverage, explain_join
from pequod.engine.joins import InstalledJoin, Join
from pequod.engine.loading import Backfills
from pequod.engine.ranges import Range, lower, united
from pequod.engine.reader import Reader
from pequod.engine.rows import Rows
from pequod.engine.spec import DELIMITER, JoinSpec
from pequod.engine.statistics import Statistics, collect
from pequod.engine.store import Store, Table, merge_layers
from pequod.engine.views import View, Views
from pequod.engine.watches import Change, Watch, Watches, refuse_unwatchable, settle_lost


class Engine:
    """The core: synchronous, deterministic, without I/O and without a clock.

    Requires:
        One thread at a time; the ``now`` of reads (seconds from any origin) never goes backwards.

    Ensures:
        What `scan` and `get` return equals a from-scratch evaluation of all joins over the present base data
        (for a snapshot join: as it was at one moment within its age). A call that raises changed nothing.

    A table may be *backed*: a database owns its keys. Then it takes no puts but `load`, which brings in what reads need
    and say with MissingError, `apply`, which takes the database's changes, and `forget`.

    Args:
        backed: The names of the backed tables, without the delimiter.
    """

    def __init__(
        self, *, key_bytes_max: int = 4096, value_bytes_max: int = 1 << 20, backed: Iterable[bytes] = ()
    ) -> None:
        #: Grows with every change of base data and of joins, and when something is invalidated.
        self.revision = 0
        self._key_bytes_max = key_bytes_max
        self._value_bytes_max = value_bytes_max
        self._store = Store()
        self._tables = self._store.tables
        self._changes = Changes()
        self._catalog = Catalog(self._store, self._changes)
        self._reader = Reader(self._changes)
        self._watches = Watches(self._store)
        self._views = Views()
        #: Ranges of joins taken in as somebody else computed them.
        self.backfills = Backfills(self._catalog, self._changes, self._reader)
        self._read_number = 0
        for name in backed:
            self._store.back(name)

    def put(self, key: bytes, value: bytes) -> None:
        """Write base data: set ``key`` to ``value`` and bring what depends on it up to date.

        Raises:
            InvalidKeyError: The key is empty.
            LimitExceededError: The key or the value is too long.
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.

        Cost:
            O(key length), plus 0.4 µs or so for each computed key that changes.
        """
        if not 0 < len(key) <= self._key_bytes_max:
            self._refuse_key(key)
        if len(value) > self._value_bytes_max:
            raise LimitExceededError("value_bytes_max", len(value), self._value_bytes_max)
        at = key.find(DELIMITER)
        if at < 0:
            old = self._store.loose.put(key, value)
            if old != value:
                self.revision += 1
                self._watches.tell_loose(key, old, value)
            return
        table = self._tables.get(key[:at]) or self._store.table(key[:at])
        if table.outputs:
            self._refuse_computed(table, key)
        if table.presence is not None:
            raise BackedKeyError(key)
        old = table.put(key, value)
        if old == value:
            return
        self.revision += 1
        if table.watches.count:
            table.watches.tell_stored(key, old, value)
        if table.readers:
            self._changes.base_changed(table.readers, key, old, value)

    def remove(self, key: bytes) -> bool:
        """Remove base data; tell whether it was there.

        Raises:
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.
        """
        if not 0 < len(key) <= self._key_bytes_max:
            self._refuse_key(key)
        at = key.find(DELIMITER)
        if at < 0:
            old = self._store.loose.remove(key)
            if old is None:
                return False
            self.revision += 1
            self._watches.tell_loose(key, old, None)
            return True
        table = self._tables.get(key[:at])
        if table is None:
            return False
        if table.outputs:
            self._refuse_computed(table, key)
        if table.presence is not None:
            raise BackedKeyError(key)
        return self._set(table, key, None)

    def load(self, first: bytes, last: bytes | None, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in what the database has in a range: what of it belongs to backed tables is loaded from now on.

        What was loaded there before is replaced. Everything that depends on it hears of each row that differs.

        Args:
            rows: All of the range that are in backed tables; others are left out.

        Cost:
            That of as many puts, in the order of ``rows``.
        """
        found = dict(rows)
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start >= stop:
                continue
            assert table.presence is not None
            gone = [key for key in table.slice(start, stop).keys if key not in found]
            table.presence.add(start, stop)
            for key in gone:
                self._set(table, key, None)
            for key, value in found.items():
                if start <= key < stop:
                    self._set(table, key, value)

    def apply(self, key: bytes, value: bytes | None) -> bool:
        """Take in a change of the database: the key's new value, None if it is gone.

        Returns:
            Whether the key lies in a loaded range of a backed table; if not, nobody needs to know.
        """
        table = self._tables.get(key.partition(DELIMITER)[0])
        if table is None or table.presence is None or not table.presence.has(key):
            return False
        self._set(table, key, value)
        return True

    def _set(self, table: Table, key: bytes, value: bytes | None) -> bool:
        """Change a row and what depends on it (None: take it out); tell whether it is another now.

        `put` does the same without the call, which would be a tenth of it.
        """
        old = table.remove(key) if value is None else table.put(key, value)
        if old == value:
            return False
        self.revision += 1
        if table.watches.count:
            table.watches.tell_stored(key, old, value)
        if table.readers:
            self._changes.base_changed(table.readers, key, old, value)
        return True

    def forget(self, first: bytes, last: bytes | None) -> None:
        """Drop what is loaded of a range, and everything that was computed from it; reads will ask for it again.

        Snapshots may still show it until they expire. Watches tell nothing of it, but what differs once it is back.

        Cost:
            O(rows forgotten, contexts dropped, and frames of the joins that read the tables).
        """
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start >= stop:
                continue
            assert table.presence is not None
            for sites in table.readers:
                for context in [context for site in sites for context in site.within(start, stop)]:
                    self._changes.drop(context)
            if table.watches.count:
                table.watches.note_forgotten(start, stop)
            for key in table.slice(start, stop).keys:
                table.remove(key)
            table.presence.discard(start, stop)

    def reads_backed(self, first: bytes, last: bytes | None) -> bool:
        """Tell whether what a read of the range shows comes from a backed table, through joins or not."""
        if any(start < stop for start, stop in (table.clip(first, last) for table in self._store.backed)):
            return True
        joins = dict.fromkeys(self._catalog.over(first, last))
        todo = list(joins)
        while todo:
            join = todo.pop()
            if any(table.presence is not None for table in join.source_tables):
                return True
            todo += [up for ups in join.upstreams for up in ups if up not in joins]
            joins.update(dict.fromkeys(todo))
        return False

    def loaded(self) -> list[Range]:
        """Return the loaded ranges of the backed tables."""
        return [one for table in self._store.backed if table.presence is not None for one in table.presence]

    def base_rows(self) -> Rows:
        """Return all base rows, of clients and of backed tables, in key order."""
        return self._store.slice(b"", None)

    @property
    def loaded_range_count(self) -> int:
        """How many ranges of the backed tables are loaded."""
        return sum(len(table.presence) for table in self._store.backed if table.presence is not None)

    def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write base data, all rows or none: `put` for each, in order, once all have been checked.

        Requires:
            As many values as keys.

        Raises:
            InvalidKeyError, LimitExceededError, ComputedKeyError, BackedKeyError: As `put`; nothing is written.

        Cost:
            That of `put` for each row; for ascending keys of tables that nobody watches and whose readers have nothing
            materialised, a quarter of it.
        """
        for key, value in zip(keys, values, strict=True):
            if not 0 < len(key) <= self._key_bytes_max:
                self._refuse_key(key)
            if len(value) > self._value_bytes_max:
                raise LimitExceededError("value_bytes_max", len(value), self._value_bytes_max)
        ascends = all(map(lt, keys, islice(keys, 1, None)))
        start = 0
        runs: list[tuple[bytes | None, int, int]] = []
        while start < len(keys):
            name, delimiter, _ = keys[start].partition(DELIMITER)
            stop = bisect_left(keys, name + _TABLE_END, start) if delimiter and ascends else start + 1
            runs.append((name if delimiter else None, start, stop))
            table = self._tables.get(name) if delimiter else None
            if table is not None and table.presence is not None:
                raise BackedKeyError(keys[start])
            if table is not None and table.outputs:
                for key in keys[start:stop]:
                    self._refuse_computed(table, key)
            start = stop
        for table_name, start, stop in runs:
            table = None if table_name is None or not ascends else self._store.table(table_name)
            is_unseen = table is not None and not table.watches.count and not any(map(any, table.readers))
            if table is not None and is_unseen and not self._changes.backfills:
                self.revision += table.put_run(list(keys[start:stop]), list(values[start:stop]))
            else:
                for key, value in zip(keys[start:stop], values[start:stop], strict=True):
                    self.put(key, value)

    def remove_range(self, first: bytes, last: bytes | None, limit: int | None = None) -> list[bytes]:
        """Remove the base data of ``[first, last)`` (None: to the end), and return its keys; computed keys stay.

        Args:
            limit: At most so many keys, the first of the range.

        Raises:
            BackedKeyError: A table that a database owns has keys in the range; nothing is removed.

        Cost:
            That of `remove` for each key.
        """
        if last is not None and first >= last:
            return []
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop:
                raise BackedKeyError(start)
        keys = self._store.slice(first, last, limit).keys
        for key in keys:
            self.remove(key)
        return keys

    def get(self, key: bytes, *, now: float = 0.0) -> bytes | None:
        """Return the value of ``key``, None if it is absent; a computed key is computed if need be.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
        """
        name, delimiter, _ = key.partition(DELIMITER)
        if not delimiter:
            return self._store.loose.get(key)
        table = self._tables.get(name)
        if table is None:
            return None
        value = table.get(key)
        if value is not None:
            return value
        if table.presence is not None and not table.presence.has(key):
            raise MissingError((Range(key, key + b"\0"),))
        for join in table.outputs:
            if join.match_output(key):
                value = self._get_computed(join, key, now)
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
            limit: At most so many rows, from the end where reading starts.
            reverse: Read from the last key down.
            now: The time, for snapshots.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(rows returned), about 1 µs beside them, if what is asked for is materialised.
        """
        # The common reads, inside one table or one timeline, are recognised without looking at joins and ranges.
        at = first.find(DELIMITER)
        table = self._tables.get(first[:at]) if at > 0 else None
        if table is None or last is None:
            return self._scan(first, last, limit, reverse=reverse, now=now)
        outputs = table.outputs
        if not outputs:
            if first < last <= table.end and (table.presence is None or table.presence.holds(first, last)):
                return table.slice(first, last, limit, reverse=reverse)
        elif len(outputs) == 1 and not table.entry_count:
            join = outputs[0]
            context = join.contexts.get(join.level_one_prefix(first))  # type: ignore[arg-type]
            if (
                context is not None
                and context.is_whole
                and context.first <= first < last <= context.last
                and now <= context.expires_s
                and (context.is_fresh or self._reader.refresh(context, now))
            ):
                join.counters.hits += 1
                self._read_number = context.last_used = self._read_number + 1
                return context.slice(first, last, limit, reverse=reverse)
        if outputs:
            view = self._views.find(first, last)
            if view is not None and self._bring_up_view(view, now):
                base = table.slice(first, last, limit, reverse=reverse) if table.entry_count else None
                return view.rows(base, limit, reverse=reverse)
        rows = self._scan(first, last, limit, reverse=reverse, now=now)
        if outputs and first < last <= table.end:
            self._views.remember(first, last, self._catalog.over(first, last))
        return rows

    def _bring_up_view(self, view: View, now: float) -> bool:
        """Bring the contexts of a view up to date; tell whether it still answers its read then."""
        if not view.holds(now):
            return False
        stale = [part.context for part in view.parts if not part.context.is_fresh]
        for context in stale:
            self._reader.refresh(context, now)
        if stale and not (view.holds(now) and all(part.context.is_fresh for part in view.parts)):
            return False
        self._read_number += 1
        for part in view.parts:
            context = part.context
            context.join.counters.hits += 1
            context.last_used = self._read_number
        return True

    def _scan(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, now: float) -> Rows:
        if last is not None and first >= last:
            return Rows([], [])
        self._read_number += 1
        if limit is None or reverse:
            return self._scan_whole(first, last, limit, reverse=reverse, now=now)
        # Many contexts are brought up to date only as far as it takes: a large scan in pieces must not look at all of
        # them for each piece. Rows may go meanwhile; then it takes more.
        wanted = limit
        while True:
            bound = self._reach(first, last, wanted)
            rows = self._scan_whole(first, bound, limit, reverse=False, now=now)
            if bound == last or len(rows.keys) >= limit:
                return rows
            wanted *= 2

    def _reach(self, first: bytes, last: bytes | None, row_count: int) -> bytes | None:
        """Return how far to read for so many rows, as far as what is materialised tells."""
        for join in self._catalog.over(first, last):
            start, stop = _clip(join, first, last)
            if start < stop and (bound := join.coverage.reach(start, stop, row_count)) < stop:
                last = bound
        return last

    def _scan_whole(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, now: float) -> Rows:
        layers = [self._store.slice(first, last, limit, reverse=reverse)]
        joins = self._catalog.over(first, last)
        pulled = self._bring_up(joins, first, last, now)
        for join in joins:
            start, stop = _clip(join, first, last)
            if join in pulled:
                rows = pulled[join]
                layers.append(Rows(rows.keys[::-1], rows.values[::-1]) if reverse else rows)
            else:
                layers.append(join.coverage.slice(start, stop, limit, reverse=reverse))
        return merge_layers(layers, limit, reverse=reverse)

    def count(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> int:
        """Return how many keys `scan` would return.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(log n) where one join or the store alone covers the range, else that of the scan.
        """
        if last is not None and first >= last:
            return 0
        joins = self._catalog.over(first, last)
        pulled = self._bring_up(joins, first, last, now)
        if pulled or any(join.rivals for join in joins):
            return len(self._scan(first, last, None, reverse=False, now=now).keys)
        return self._store.count(first, last) + sum(join.coverage.count(*_clip(join, first, last)) for join in joins)

    def splits(self, first: bytes, last: bytes | None, count: int) -> list[bytes]:
        """Return keys that cut ``[first, last)`` into about ``count`` parts of about equal numbers of rows.

        What is held counts: nothing is computed or loaded for it. They ascend, and lie above ``first``.

        Cost:
            O(groups and status ranges in the range, some thousands of them at most): a few ms.
        """
        return splits.find(self._store, self._catalog.over(first, last), first, last, count)

    def add_joins(self, specs: Sequence[JoinSpec]) -> list[Join]:
        """Install joins, all or none; one that is installed already is left as it is.

        Raises:
            JoinError: A join is malformed, part of a cycle, or computes keys that clients have written.

        Cost:
            O(keys of the output tables), and what depends on the new joins is computed anew when read.
        """
        before = set(self._catalog)
        joins, is_new = self._catalog.add(specs)
        self._views.forget()
        self.backfills.review()
        self.revision += is_new
        for join in self._catalog:
            if join not in before:
                self._watches.end_over(join)
        return joins

    def drop_join(self, name: str) -> None:
        """Take out a join and its outputs.

        Raises:
            UnknownJoinError: No join has this name.
        """
        dropped = self._catalog.find(name)
        self._catalog.drop(name)
        self._views.forget()
        self.backfills.review()
        self.revision += 1
        self._watches.end_over(dropped)

    def joins(self) -> list[Join]:
        """Return the installed joins, the earliest first."""
        return [join.info for join in self._catalog]

    def explain_join(self, name: str) -> JoinExplanation:
        """Return how a join is evaluated and kept.

        Raises:
            UnknownJoinError: No join has this name.
        """
        return explain_join(self._catalog.find(name))

    def explain_range(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> RangeExplanation:
        """Return what a read of ``[first, last)`` would find and have to do; nothing is computed."""
        is_empty = last is not None and first >= last
        return RangeExplanation(
            first,
            last,
            0 if is_empty else self._store.count(first, last),
            tuple(
                explain_coverage(join, *_clip(join, first, last), now)
                for join in ([] if is_empty else self._catalog.over(first, last))
            ),
        )

    def watch(self, first: bytes, last: bytes | None, wake: Callable[[], None], *, now: float = 0.0) -> Watch:
        """Follow the changes of ``[first, last)`` (None: to the end), computed keys included.

        Args:
            wake: Called when there is something to `settle`; must not call the engine.

        Raises:
            NotWatchableError: A join over the range is not kept up to date by pushing.
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            That of a scan of the range; later 0.5 µs or so more for each computed row that changes in the table.
        """
        joins = self._catalog.over(first, last)
        for join in joins:
            refuse_unwatchable(join)
        watch = Watch(first, last, wake)
        self._read_number += 1
        self._bring_up(joins, first, last, now)
        self._watches.add(watch)
        return watch

    def settle(self, watch: Watch, *, now: float = 0.0) -> list[Change]:
        """Bring a watched range up to date and return its changes since the last time, in order.

        A scan of the range now is the scan of then with these changes.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded; nothing has been taken.
        """
        while watch.ended is None and (watch.stale or watch.lost):
            while watch.stale:
                self._refresh_watched(watch, now)
            lost = len(watch.lost)
            joins = self._catalog.over(watch.first, watch.last) if lost else []
            try:
                for join in joins:
                    refuse_unwatchable(join)
            except NotWatchableError as error:
                self._watches.end(watch, str(error))
                break
            missing: list[Range] = []
            for first, last in watch.lost[:lost]:
                try:
                    self._bring_up(self._catalog.over(first, last), first, last, now)
                except MissingError as error:
                    missing += error.ranges
            if missing:
                raise MissingError(united(missing))
            if lost and not watch.stale and lost == len(watch.lost):
                settle_lost(watch, joins, self._store.backed)
        return watch.take()

    def _refresh_watched(self, watch: Watch, now: float) -> None:
        self._reader.missing.clear()
        stale, watch.stale = watch.stale, {}
        for context in stale:
            if not self._reader.refresh(context, now) and context.is_live:
                watch.stale[context] = None
        self._refuse_missing()

    def unwatch(self, watch: Watch) -> None:
        """Follow a range no more."""
        self._watches.discard(watch)

    def tell_time(self, now: float) -> None:
        """Say what time it is: later changes are dated by it, for `JoinStatistics.age_s`."""
        self._changes.now_s = now

    def statistics(self, *, now: float = 0.0) -> Statistics:
        """Return what is stored and materialised, and what happened so far.

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
            What changes between steps is counted as of some moment, the rest exactly.
        """
        return collect(self._store, self._catalog, lambda: self.revision, now)

    def evict(self, context_count: int) -> int:
        """Forget so many of the least recently read contexts; return how many went, dependants included.

        What is watched stays, unless it depends on what goes.
        """
        live = {status.context for join in self._catalog for status in join.coverage}
        idle = [context for context in live if not context.join.watches.holds(context)]
        for context in sorted(idle, key=lambda context: context.last_used)[:context_count]:
            self._changes.drop(context)
        return sum(not context.is_live for context in live)

    def invalidate(self, first: bytes, last: bytes | None) -> int:
        """Forget what is computed of a range, and what that was computed from; reads compute it anew.

        Returns:
            How many contexts that were; more may have gone that depend on them.

        Cost:
            O(frames of what is forgotten).
        """
        if last is not None and first >= last:
            return 0
        joins = dict.fromkeys(self._catalog.over(first, last))
        found = [status.context for join in joins for status in join.coverage.overlapping(*_clip(join, first, last))]
        # A join that keeps nothing shows what others keep.
        todo = [join for join in joins if join.is_pull]
        while todo:
            for upstream in dict.fromkeys(up for ups in todo.pop().upstreams for up in ups):
                found += [status.context for status in upstream.coverage]
                todo += [upstream] if upstream.is_pull else []
        doomed = dict.fromkeys(found)
        while found:
            found += [up for up in found.pop().upstreams if up not in doomed]
            doomed.update(dict.fromkeys(found))
        for context in doomed:
            self._changes.drop(context)
        # So that whoever follows the range can tell what they are told now from what came before.
        self.revision += bool(doomed)
        return len(doomed)

    def invalidate_join(self, name: str) -> int:
        """Forget everything that a join computed, as `invalidate` does.

        Raises:
            UnknownJoinError: No join has this name.
        """
        join = self._catalog.find(name)
        return self.invalidate(join.first, join.last)

    def _bring_up(
        self, joins: list[InstalledJoin], first: bytes, last: bytes | None, now: float
    ) -> dict[InstalledJoin, Rows]:
        """Materialise a range of joins and bring it up to date; return the rows of those that keep nothing."""
        while True:
            self._reader.missing.clear()
            serial = self._changes.serial
            pulled = {}
            for join in joins:
                start, stop = _clip(join, first, last)
                if join.is_pull:
                    pulled[join] = self._reader.pull(join, start, stop, now)
                    continue
                for context in self._reader.ensure(join, start, stop, now) or ():
                    context.last_used = self._read_number
            if self._store.backed:
                self._reader.missing.update(dict.fromkeys(self._store.absent(first, last)))
                self._refuse_missing()
            if serial == self._changes.serial:
                return pulled

    def _refuse_missing(self) -> None:
        if self._reader.missing:
            raise MissingError(united(self._reader.missing))

    def _get_computed(self, join: InstalledJoin, key: bytes, now: float) -> bytes | None:
        status = join.coverage.find(key)
        context = None if status is None else status.context
        if context is None or not context.is_fresh or context.expires_s < now:
            pulled = self._bring_up([join], key, key + b"\0", now)
            if join in pulled:
                return pulled[join].values[0] if pulled[join].values else None
            status = join.coverage.find(key)
            assert status is not None
            context = status.context
        else:
            join.counters.hits += 1
        self._read_number = context.last_used = self._read_number + 1
        return context.get(key)

    def _refuse_key(self, key: bytes) -> None:
        if not key:
            raise InvalidKeyError(key, "it is empty")
        raise LimitExceededError("key_bytes_max", len(key), self._key_bytes_max)

    def _refuse_computed(self, table: Table, key: bytes) -> None:
        for join in table.outputs:
            if join.match_output(key):
                raise ComputedKeyError(key, join.info.name)

    def _check(self) -> None:
        self._store._check()
        self._watches._check()
        self._catalog._check()
        self.backfills._check()


#: The first byte above the delimiter: behind a table's name, above all its keys.
_TABLE_END: Final = bytes((DELIMITER[0] + 1,))


def _clip(join: InstalledJoin, first: bytes, last: bytes | None) -> tuple[bytes, bytes]:
    stop = lower(last, join.last)
    assert stop is not None
    return max(first, join.first), stop
