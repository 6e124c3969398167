"""Watches: ranges whose changes are delivered, computed keys included.

    base key put or removed    --> delivered at once
    computed row set           --> delivered at once
    context stale              --> noted; `Following.settle` brings it up to date, which delivers its rows
    context dropped            --> its rows are kept aside; settling computes them again and delivers the differences

So the delivered rows are those of the watched contexts, at every moment. After settling, they are what a scan returns,
and a watch that kept the rows of its start can follow every change from the old value to the new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from pequod.answers.changes import Change
from pequod.engine.base.range_tree import RangeTree
from pequod.engine.base.table import Table
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.told import Changes, HotWatch, ToldLane
from pequod.engine.memory.ledger import CHANGE
from pequod.language.ranges import lower

#: Of as many watches of a table each may be looked at for a key; of more, a tree finds those that hold it.
FEW: Final = 16


class Watch(HotWatch):
    """A range ``[first, last)`` (None: to the end) whose changes are followed.

    Invariants:
        1. Exactly the changes of the range are delivered, each key's from its last delivered value to the next.
        2. ``stale`` and ``lost`` name the parts of the range that are not yet as a scan would return them; both are
        empty after settling.
    """

    __slots__ = ("hears_deadlines", "loss_count", "lost_rows")

    def __init__(self, first: bytes, last: bytes | None, wake: Callable[[], None]) -> None:
        self.first = first
        self.last = last
        self.waker = wake
        self.is_awake = False
        #: Whether it is told that a key has another deadline, by a change from its value to the same.
        self.hears_deadlines = False
        self.changes = wake if isinstance(wake, ToldLane) else Changes()
        self.stale: dict[Context, None] = {}
        #: Ranges whose contexts were dropped or whose rows were forgotten, with the rows that were delivered of them:
        #: computed ones, or those of a backed table.
        self.lost = []
        self.lost_rows: dict[bytes, bytes] = {}
        #: How often a range was lost.
        self.loss_count = 0
        self.ended = None

    def covers(self, key: bytes) -> bool:
        """Return whether the key lies in the range."""
        return self.first <= key and (self.last is None or key < self.last)

    def tell(self, change: Change) -> None:
        """Note a change."""
        self.changes.append(change)
        if not self.is_awake:
            self.wake()

    def lose(self, first: bytes, last: bytes, rows: Mapping[bytes, bytes]) -> None:
        """Note that a range is lost, and keep its delivered rows.

        If it is forgotten in pieces, in order, they become one range.
        """
        for key, value in rows.items():
            if not any(start <= key < stop for start, stop in self.lost):
                self.lost_rows[key] = value
        if self.lost and self.lost[-1][1] == first:
            first = self.lost.pop()[0]
        self.lost.append((first, last))
        self.loss_count += 1
        self.wake()

    def wake(self) -> None:
        """Ask for the watch to be settled soon."""
        if not self.is_awake:
            self.is_awake = True
            self.waker()

    @property
    def is_behind(self) -> bool:
        """Whether parts of the range are not yet as a scan would return them."""
        return bool(self.stale or self.lost)

    def take(self) -> list[Change]:
        """Return the changes since the last call."""
        self.is_awake = False
        return self.changes.take()

    def end(self, reason: str) -> None:
        """End: deliver nothing more."""
        if self.ended is None:
            self.ended = reason
            self.wake()


class WatchIndex(RangeTree):
    """The watches of one table, by range.

    Invariants:
        1. ``_whole`` has those that hold the whole table, which no look-up has to find; the tree has the others.
        2. ``count`` is the number of all, and ``few`` has all of them if these are few; else it is None.
    """

    __slots__ = ("_table", "_whole", "are_whole", "few")

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self._whole: dict[Watch, None] = {}
        #: Whether there are watches, and all of them hold the whole table.
        self.are_whole = False
        self.few: tuple[Watch, ...] | None = ()

    def add(self, watch: Watch) -> None:
        """Add the part of a watch that lies in the table."""
        first, last = self._clip(watch)
        if (first, last) == (self._table.prefix, self._table.end):
            self._whole[watch] = None
        elif first < last:
            self._tree.addi(first, last, watch)
        self._count()

    def remove(self, watch: Watch) -> None:
        """Remove a watch."""
        first, last = self._clip(watch)
        if watch in self._whole:
            del self._whole[watch]
        elif first < last:
            self._tree.discardi(first, last, watch)
        self._count()

    def _count(self) -> None:
        self.count = len(self._tree) + len(self._whole)
        self.are_whole = self.count > 0 and not self._tree
        self.few = None
        if self.count <= FEW:
            self.few = *self._whole, *(one.data for one in sorted(self._tree, key=itemgetter(0, 1)))

    def are_over(self, first: bytes, last: bytes) -> bool:
        """Return whether any watch shares a key with ``[first, last)``, which lies in the table."""
        return bool(self._whole) or super().are_over(first, last)

    def _at(self, key: bytes) -> Iterable[Watch]:
        """Return the watches that hold a key of the table."""
        if not self._tree:
            return self._whole
        return [*self._whole, *(interval.data for interval in self._tree.at(key))]

    def tell_stored(self, change: Change) -> None:
        """Note the change of a client-written row.

        Cost:
            O(log watches), plus the watches that hold the key.
        """
        for watch in self._at(change.key):
            if self._table.presence is None or not any(first <= change.key < last for first, last in watch.lost):
                watch.tell(change)

    def tell_deadline(self, key: bytes, value: bytes) -> None:
        """Note that a client-written row has another deadline."""
        for watch in self._at(key):
            if watch.hears_deadlines:
                watch.tell(Change(key, value, value))

    def tell_computed(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Note the change of a computed row; if rows were lost, settling delivers the difference at the end.

        The parts of `Watch.tell` stand here, since each row that is copied comes by.
        """
        for watch in self._whole if self.are_whole else self._at(key):
            if watch.lost and any(first <= key < last for first, last in watch.lost):
                continue
            watch.changes.tell(key, old, new)
            if not watch.is_awake:
                watch.wake()

    def note_stale(self, context: Context) -> None:
        """Have a context brought up to date if watches share keys with it."""
        for watch in self._over(context.first, context.last):
            watch.stale[context] = None
            watch.wake()

    def over(self, first: bytes, last: bytes) -> Iterator[tuple[Watch, bytes, bytes]]:
        """Yield the watches that share keys with ``[first, last)``, each with the shared part."""
        for watch in self._over(first, last):
            start, stop = max(watch.first, first), lower(watch.last, last)
            assert stop is not None
            yield watch, start, stop

    def note_forgotten(self, first: bytes, last: bytes) -> None:
        """Keep the delivered rows of a range of the table that is about to be forgotten."""
        for watch, start, stop in self.over(first, last):
            rows = self._table.slice(start, stop)
            watch.lose(start, stop, dict(zip(rows.keys, rows.values, strict=True)))

    def _over(self, first: bytes, last: bytes) -> list[Watch]:
        return [*self._whole, *(interval.data for interval in self._tree.overlap(first, last))]

    def all(self) -> set[Watch]:
        """Return all watches."""
        return {*self._whole, *(interval.data for interval in self._tree)}

    def _clip(self, watch: Watch) -> tuple[bytes, bytes]:
        last = lower(watch.last, self._table.end)
        assert last is not None
        return max(watch.first, self._table.prefix), last


def change_bytes(changes: Changes) -> tuple[int, int]:
    """Return the bytes that changes take, and those of their keys and values.

    They take those of the old values only, since the new ones are in the store.
    """
    old_bytes, new_bytes = changes.text_bytes()
    return CHANGE * len(changes) + old_bytes, old_bytes + new_bytes
