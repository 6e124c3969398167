"""Watches: ranges whose changes are told, computed keys included.

    base key put or removed    --> told at once
    computed row set           --> told at once
    context stale              --> noted; `Watches.settle` brings it up to date, which tells its rows
    context dropped            --> its rows are kept aside; settling computes them anew and tells what differs

So what was told is what the watched contexts hold, at every moment. After settling, that is what a scan returns, and a
watch that kept the rows of its start can follow every change from the old value to the new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from intervaltree import IntervalTree

from pequod.engine.base.rows import Rows
from pequod.engine.memory.ledger import CHANGE
from pequod.language.errors import NotWatchableError
from pequod.language.ranges import lower
from pequod.language.spec import Snapshot

if TYPE_CHECKING:
    from pequod.engine.base.store import Store, Table
    from pequod.engine.joins.contexts import Context
    from pequod.engine.joins.installed import InstalledJoin


class Change(NamedTuple):
    """A key's value before and after; None where the key is absent."""

    key: bytes
    old: bytes | None
    new: bytes | None


class Watch:
    """A range ``[first, last)`` (None: to the end) that somebody follows.

    Invariants:
        1. Told are exactly the changes of the range, each key's from its last told value to the next.
        2. ``stale`` and ``lost`` say what of the range is not yet as a scan would return it; both are empty after
           settling.
    """

    __slots__ = ("_is_awake", "_wake", "changes", "ended", "first", "last", "loss_count", "lost", "lost_rows", "stale")

    def __init__(self, first: bytes, last: bytes | None, wake: Callable[[], None]) -> None:
        self.first = first
        self.last = last
        self._wake = wake
        self._is_awake = False
        #: What was told and not taken yet.
        self.changes: list[Change] = []
        self.stale: dict[Context, None] = {}
        #: Ranges whose contexts were dropped or whose rows were forgotten, and the rows that were told of them: the
        #: computed ones, or those of a backed table.
        self.lost: list[tuple[bytes, bytes]] = []
        self.lost_rows: dict[bytes, bytes] = {}
        #: How often something was lost.
        self.loss_count = 0
        #: Why it tells no more; None while it does.
        self.ended: str | None = None

    def covers(self, key: bytes) -> bool:
        """Tell whether the key lies in the range."""
        return self.first <= key and (self.last is None or key < self.last)

    def tell(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Note a change."""
        self.changes.append(Change(key, old, new))
        self.wake()

    def lose(self, first: bytes, last: bytes) -> None:
        """Note that a range is lost; what is forgotten piece by piece, in order, is one range."""
        if self.lost and self.lost[-1][1] == first:
            first = self.lost.pop()[0]
        self.lost.append((first, last))
        self.loss_count += 1
        self.wake()

    def wake(self) -> None:
        """Have the watch settled soon."""
        if not self._is_awake:
            self._is_awake = True
            self._wake()

    def take(self) -> list[Change]:
        """Return what was told since the last time."""
        self._is_awake = False
        taken, self.changes = self.changes, []
        return taken

    def end(self, reason: str) -> None:
        """Tell no more."""
        if self.ended is None:
            self.ended = reason
            self.wake()


class WatchIndex:
    """The watches of one table, by range."""

    __slots__ = ("_table", "_tree", "count")

    def __init__(self, table: Table) -> None:
        self._table = table
        self._tree = IntervalTree()
        #: How many there are; looked at on every put.
        self.count = 0

    def add(self, watch: Watch) -> None:
        """Take in what of a watch lies in the table."""
        first, last = self._clip(watch)
        if first < last:
            self._tree.addi(first, last, watch)
            self.count = len(self._tree)

    def discard(self, watch: Watch) -> None:
        """Take out a watch."""
        first, last = self._clip(watch)
        if first < last:
            self._tree.discardi(first, last, watch)
            self.count = len(self._tree)

    def holds(self, context: Context) -> bool:
        """Tell whether somebody watches what a context holds."""
        return self.count > 0 and self.are_over(context.first, context.last)

    def are_over(self, first: bytes, last: bytes) -> bool:
        """Tell whether somebody watches some of a range."""
        return bool(self._tree.overlap(first, last))

    def tell_stored(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Note the change of a client-written row.

        Cost:
            O(log watches), plus the watches that cover the key.
        """
        for interval in self._tree.at(key):
            watch: Watch = interval.data
            if self._table.presence is None or not any(first <= key < last for first, last in watch.lost):
                watch.tell(key, old, new)

    def tell_computed(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Note the change of a computed row; where rows were lost, settling tells what differs in the end."""
        for interval in self._tree.at(key):
            watch: Watch = interval.data
            if not any(first <= key < last for first, last in watch.lost):
                watch.tell(key, old, new)

    def note_stale(self, context: Context) -> None:
        """Have a context brought up to date that watches cover."""
        for watch in self._over(context.first, context.last):
            watch.stale[context] = None
            watch.wake()

    def note_lost(self, context: Context) -> None:
        """Keep the rows aside that were told of a context which is about to be dropped."""
        for status in context.ranges:
            for watch in self._over(status.first, status.last):
                first, last = max(watch.first, status.first), lower(watch.last, status.last)
                assert last is not None
                for key, value in _computed(self._table.outputs, first, last).items():
                    if not any(start <= key < stop for start, stop in watch.lost):
                        watch.lost_rows[key] = value
                watch.lose(first, last)

    def note_forgotten(self, first: bytes, last: bytes) -> None:
        """Keep the rows aside that were told of a range of the table which is about to be forgotten."""
        for watch in self._over(first, last):
            start, stop = max(watch.first, first), lower(watch.last, last)
            assert stop is not None
            rows = self._table.slice(start, stop)
            for key, value in zip(rows.keys, rows.values, strict=True):
                if not any(lost <= key < end for lost, end in watch.lost):
                    watch.lost_rows[key] = value
            watch.lose(start, stop)

    def _over(self, first: bytes, last: bytes) -> list[Watch]:
        return [interval.data for interval in self._tree.overlap(first, last)]

    def _clip(self, watch: Watch) -> tuple[bytes, bytes]:
        last = lower(watch.last, self._table.end)
        assert last is not None
        return max(watch.first, self._table.prefix), last


class Watches:
    """All watches of an engine.

    Invariants:
        1. Every table's index holds exactly the live watches that overlap the table.
    """

    __slots__ = ("_live", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live = store.watches

    def __len__(self) -> int:
        return len(self._live)

    def add(self, watch: Watch) -> None:
        """Let a watch hear of changes; joins over its range are materialised there and fresh."""
        self._live[watch] = None
        for table in self._store.tables_of(watch.first, watch.last):
            table.watches.add(watch)

    def discard(self, watch: Watch) -> None:
        """Let a watch hear no more; nothing changes if it does not."""
        if watch not in self._live:
            return
        del self._live[watch]
        for table in self._store.tables_of(watch.first, watch.last):
            table.watches.discard(watch)

    def tell_loose(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Note the change of a key that is in no table."""
        for watch in self._live:
            if watch.covers(key):
                watch.tell(key, old, new)

    def end_over(self, join: InstalledJoin) -> None:
        """End the watches over a join that came or went."""
        for watch in list(self._live):
            if watch.first < join.last and (watch.last is None or join.first < watch.last):
                self.end(watch, f"the join {join.info.name!r} over this range came or went")

    def end(self, watch: Watch, reason: str) -> None:
        """Let a watch hear no more, and say why."""
        self.discard(watch)
        watch.end(reason)

    def _check(self) -> None:
        for table in self._store.tables.values():
            clipped = {watch: table.watches._clip(watch) for watch in self._live}
            over = {watch for watch, (first, last) in clipped.items() if first < last}
            assert {interval.data for interval in table.watches._tree} == over, "invariant 1"
            assert table.watches.count == len(over), "invariant 1"


def change_bytes(changes: Sequence[Change]) -> int:
    """Return what changes take; of their values the old ones, since the new ones are what is stored."""
    return sum([CHANGE + len(key) + (0 if old is None else len(old)) for key, old, _ in changes])


def refuse_unwatchable(join: InstalledJoin) -> None:
    """Raise NotWatchableError unless all changes of a join's rows are told."""
    if join.is_pull:
        raise NotWatchableError(join.info.name, "it is computed on every read and keeps nothing")
    todo = [join]
    for timed in todo:
        if isinstance(timed.spec.maintenance, Snapshot):
            raise NotWatchableError(join.info.name, "it shows snapshots, which change by the clock")
        todo += [upstream for upstreams in timed.upstreams for upstream in upstreams]


def settle_lost(watch: Watch, joins: Sequence[InstalledJoin], backed: Iterable[Table]) -> None:
    """Tell how what was lost differs from what is there now, materialised and fresh."""
    rows: dict[bytes, bytes] = {}
    for first, last in watch.lost:
        rows |= _computed(joins, first, last)
        for table in backed:
            start, stop = table.clip(first, last)
            found = table.slice(start, stop) if start < stop else Rows([], [])
            rows.update(zip(found.keys, found.values, strict=True))
    before, watch.lost_rows = watch.lost_rows, {}
    watch.lost = []
    for key in sorted(before.keys() | rows.keys()):
        old, new = before.get(key), rows.get(key)
        if old != new:
            watch.changes.append(Change(key, old, new))


def _computed(joins: Iterable[InstalledJoin], first: bytes, last: bytes) -> dict[bytes, bytes]:
    """Return what is materialised in ``[first, last)``; of two joins the earlier one's value stands."""
    rows: dict[bytes, bytes] = {}
    for join in sorted(joins, key=lambda join: join.order, reverse=True):
        start, stop = max(first, join.first), min(last, join.last)
        found = join.coverage.slice(start, stop) if start < stop else Rows([], [])
        rows.update(zip(found.keys, found.values, strict=True))
    return rows
