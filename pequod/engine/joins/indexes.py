"""Indexes: the rows that a source with records sees in its table, in the order in which joins read them.

    table   article|7  {"author":"bob","title":"Hi"}      article|9  {"author":"ann","title":"Ho"}
    index   article|ann|9  {"title":"Ho"}                 article|bob|7  {"title":"Hi"}

for `copy article|<id> with author = <author> as {title}`. Joins that see the same share one index. It is made when a
read first needs it, kept up to date by every change of the table, and dropped when memory is short: nothing depends on
it but the time of reads. Rows that joins compute are not in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, cast

from pequod.answers.rows import Rows
from pequod.engine.base.table import Cut, Table
from pequod.engine.memory.eviction import PINNED, Evictor, Rank, Ticket
from pequod.engine.memory.ledger import BYTES, GROUP, ROW, TABLE
from pequod.language.containing import keys_of
from pequod.language.forms import Misfit
from pequod.language.many_records import show_all
from pequod.language.missing import Lacking
from pequod.language.parsing import read_json
from pequod.language.ranges import Range
from pequod.language.record_checks import Record
from pequod.language.records import Lens, Shown
from pequod.language.spec import Slot
from pequod.language.views import RecordView

#: Indexes are evicted after everything else that may be.
_PRIORITY: Final = PINNED - 1
_NOTHING: Final[Shown] = {}
#: A plain key, the value that it had, and the one that it has; None: it is absent.
PlainChange = tuple[bytes, bytes | None, bytes | None]


class RecordParser:
    """Parses values, each once for all the indexes that look at a change: the old value and the new one."""

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self._latest: tuple[bytes, Record | None] = (b"", None)
        self._earlier: tuple[bytes, Record | None] = self._latest

    def __call__(self, value: bytes) -> Record | None:
        """Return the object that a value is, None if it is something else: `parse_record`, without the call."""
        latest = self._latest
        if latest[0] is value:
            return latest[1]
        earlier = self._earlier
        if earlier[0] is value:
            return earlier[1]
        self._earlier = latest
        try:
            found = read_json(value)
        except ValueError:
            found = None
        record = cast("Record", found) if found.__class__ is dict else None
        self._latest = value, record
        return record


class Gaps(Protocol):
    """Knows which ranges of keys are loaded, or which of plain keys a database was searched for."""

    def gaps(self, first: bytes, last: bytes, read_number: int) -> Sequence[Lacking]:
        """Return the parts of a range that are not there for a read."""


class Index:
    """What a source with records sees in one table.

    Invariants:
        1. ``rows``, if they are there, are those that the lens shows in the table's present rows.
        2. The ledger has ``_counted_bytes`` for them, and they have a ticket if and only if they are there.
    """

    __slots__ = (
        "_counted_bytes",
        "_parse",
        "last_used",
        "lens",
        "memory",
        "misfits",
        "range",
        "rows",
        "searched",
        "table",
        "ticket",
    )

    def __init__(self, view: RecordView, table: Table, memory: Evictor, parse: RecordParser) -> None:
        self.lens = Lens(view)
        self.table = table
        self.memory = memory
        self._parse = parse
        #: The range of the source's own keys.
        self.range = Range(*keys_of(view.source.pattern))
        self.rows: Table | None = None
        #: What the database can be asked for beside ranges of its keys; None: nothing, or there is no database.
        self.searched: Gaps | None = None
        self._counted_bytes = 0
        self.ticket: Ticket | None = None
        #: The number of the latest read that used it.
        self.last_used = 0
        #: Why rows of the table were not seen -> how often one was looked at, and the latest such key.
        self.misfits: dict[Misfit, tuple[int, bytes]] = {}

    def look(self, key: bytes, value: bytes | None) -> Shown:
        """Return the plain rows that a row of the table shows."""
        if value is None:
            return _NOTHING
        shown = self.lens.show(key, value, self._parse)
        return _NOTHING if isinstance(shown, Misfit) else shown

    def look_at_new(self, key: bytes, value: bytes | None) -> Shown:
        """Return the same for a row that has just been written; if there are none, count the reason."""
        if value is None:
            return _NOTHING
        shown = self.lens.show(key, value, self._parse)
        if isinstance(shown, Misfit):
            self._count(shown, key)
            return _NOTHING
        return shown

    def take(self, key: bytes, old: bytes | None, new: bytes | None) -> Iterable[PlainChange]:
        """Bring the rows, if they are there, up to date with the change of a row of the table.

        Returns:
            The plain rows that change.
        """
        rows = self.rows
        if rows is None or new is None or self.lens.each is not None:
            return self._take_all(self.look(key, old), self.look_at_new(key, new))
        shown = self.lens.show_row(key, new, self._parse)
        if isinstance(shown, Misfit):
            self._count(shown, key)
            return self._take_all(self.look(key, old), _NOTHING)
        plain, value = shown
        was = rows.put(plain, value)
        if was is None:
            gone = self._take_all(self.look(key, old), _NOTHING)
            self._weigh()
            return [*gone, (plain, None, value)]
        # Only this row shows it, and shows nothing else: the old value is not parsed (invariant 1 of lenses).
        if was == value:
            return ()
        if self.lens.has_own_values and len(was) != len(value):
            self._weigh()
        return ((plain, was, value),)

    def _take_all(self, before: Shown, after: Shown) -> list[PlainChange]:
        if before == after:
            return []
        self.change(before, after)
        return _changes(before, after)

    def compare(self, key: bytes, old: bytes | None, new: bytes | None) -> list[PlainChange]:
        """Return the plain rows that change with a row that a join computes, which is not in the index."""
        return _changes(self.look(key, old), self.look_at_new(key, new))

    def show(self, rows: Rows) -> Rows:
        """Return the plain rows of some rows of the table, in order.

        Cost:
            O(n log n); parsing takes most of it.
        """
        keys, values = show_all(self.lens, rows.keys, rows.values, self._count)
        # The values go where their keys go: a dictionary between them takes a third more (bench row: records, indexed).
        key_of = iter(keys)
        values.sort(key=lambda _value: next(key_of))
        keys.sort()
        return Rows(keys, values)

    def _count(self, misfit: Misfit, key: bytes) -> None:
        if misfit is not Misfit.NOT_SELECTED:
            count, _ = self.misfits.get(misfit, (0, b""))
            self.misfits[misfit] = count + 1, key

    @property
    def misfit_count(self) -> int:
        """How many of the rows that were looked at had no plain rows for a reason that is counted."""
        return sum(count for count, _ in self.misfits.values())

    def build(self, read_number: int) -> Table | None:
        """Make the rows, unless memory is too short for them.

        Requires:
            All the table's rows of the source's range are there, and no join computes others.
        """
        shown = self.show(self.table.slice(self.range.first, self.range.last))
        rows = Table(self.table.prefix)
        rows.cut = None
        rows.regroup(self._cut())
        self.last_used = read_number
        if not self.memory.make_room(TABLE + len(shown.keys) * ROW + sum(map(len, shown.keys))):
            return None
        rows.put_run(shown.keys, shown.values)
        self.rows = rows
        self.memory.ledger.change_indexes(1, 0)
        self._weigh()
        self.memory.enter(self, (_PRIORITY, read_number, 0))
        return rows

    def seen(self, first: bytes, last: bytes) -> Rows:
        """Return the plain rows of a range that the present rows of the table show.

        Cost:
            O(log n + rows found); O(rows of the table) if the index is not made.
        """
        if self.rows is not None:
            return self.rows.slice(first, last)
        shown = self.show(self.table.slice(*self.range))
        start, stop = bisect_left(shown.keys, first), bisect_left(shown.keys, last)
        return Rows(shown.keys[start:stop], shown.values[start:stop])

    def change(self, before: Shown, after: Shown) -> None:
        """Change the plain rows of one row of the table, if there are any here."""
        rows = self.rows
        if rows is None:
            return
        if before:
            for key in before:
                if key not in after:
                    rows.remove(key)
        for key, value in after.items():
            rows.put(key, value)
        if self.lens.has_own_values or before.keys() != after.keys():
            self._weigh()

    def drop(self) -> None:
        """Drop the rows; nothing changes if there are none."""
        if self.rows is None:
            return
        self.rows = None
        self.memory.leave(self)
        self.memory.ledger.change_indexes(-1, -self._counted_bytes)
        self._counted_bytes = 0

    def rank(self) -> Rank:
        """Return its place in the order of eviction: the last."""
        return _PRIORITY, self.last_used, 0

    def _cut(self) -> Cut:
        """Return how to cut the rows: after the first slot."""
        _, slot, follow, *_ = self.lens.view.pattern.parts
        assert isinstance(slot, Slot), "plain keys have a slot of the key and one of a field, at least"
        assert isinstance(follow, bytes), "a delimiter is between two slots"
        return Cut(None if slot.width is None else slot.width + len(follow))

    def _weigh(self) -> None:
        counted_bytes = self.count_bytes()
        self.memory.ledger.change_indexes(0, counted_bytes - self._counted_bytes)
        self._counted_bytes = counted_bytes

    def count_bytes(self) -> int:
        """Return the memory of the rows; values that are the table's own are counted there.

        Cost:
            O(1).
        """
        rows = self.rows
        if rows is None:
            return 0
        own_bytes = rows.value_bytes if self.lens.has_own_values else -BYTES * rows.entry_count
        return TABLE + len(rows.groups) * GROUP + rows.entry_count * ROW + rows.key_bytes + own_bytes

    def _check(self) -> None:
        assert self._counted_bytes == self.count_bytes(), "invariant 2"
        assert (self.ticket is None) == (self.rows is None), "invariant 2"
        if self.rows is not None:
            self.rows._check()
            found = self.rows.slice(self.rows.prefix, self.rows.end)
            misfits = dict(self.misfits)
            assert found == self.show(self.table.slice(self.range.first, self.range.last)), "invariant 1"
            self.misfits = misfits


def _changes(before: Shown, after: Shown) -> list[PlainChange]:
    both = [(key, before.get(key), after.get(key)) for key in (before | after if before else after)]
    return [(key, was, value) for key, was, value in both if was != value]
