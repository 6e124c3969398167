"""Indexes: the rows that a source with records sees in its table, in the order in which joins read them.

    table   article|7  {"author":"bob","title":"Hi"}      article|9  {"author":"ann","title":"Ho"}
    index   article|ann|9  {"title":"Ho"}                 article|bob|7  {"title":"Hi"}

for `copy article|<id> with author = <author> as {title}`. Joins that see the same share one index. It is made when a
read first needs it, kept up to date by every change of the table, and dropped when memory is short: nothing depends on
it but the time of reads.

Of a source whose rows joins compute, it has these, too, and goes with the contexts that hold them. Else it is made
slice by slice, in the order of the table's keys, and other calls may come between two slices:

    table   article|7   article|9  :  article|10   article|12
    rows    of 7 and 9             :  not yet; a change of article|12 changes nothing here
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from sys import maxsize
from typing import Final, Protocol

from pequod.answers.rows import Rows
from pequod.engine.base.table import Cut, Table
from pequod.engine.joins.index_bytes import HotIndex
from pequod.engine.joins.record_parser import RecordParser
from pequod.engine.memory.eviction import PINNED, WAIT_READS, Evictor, Rank, Ticket
from pequod.engine.memory.ledger import BYTES, GROUP, ROW, TABLE
from pequod.language.containing import keys_of
from pequod.language.forms import Misfit
from pequod.language.many_records import cut_at, is_long, show_all
from pequod.language.missing import Loadable
from pequod.language.ranges import Range
from pequod.language.records import Lens, Shown
from pequod.language.spec import Slot
from pequod.language.views import RecordView

#: The most rows of the table that one slice of the making of an index looks at, and the bytes of values after which it
#: ends with the row that it is at. That is some milliseconds. Tests make them small.
SLICE_ROWS = 256
SLICE_BYTES = 256 << 10
#: Indexes are evicted after everything else that may be.
_PRIORITY: Final = PINNED - 1
_NOTHING: Final[Shown] = {}
#: A plain key, the value that it had, and the one that it has; None: it is absent.
PlainChange = tuple[bytes, bytes | None, bytes | None]


class Growth(Enum):
    """What came of a slice of the making of an index."""

    MORE = auto()
    WHOLE = auto()
    #: Of memory, even after eviction.
    NO_ROOM = auto()


class Gaps(Protocol):
    """Knows which ranges of keys are loaded, or which of plain keys a database was searched for."""

    def gaps(self, first: bytes, last: bytes, read_number: int) -> Sequence[Loadable]:
        """Return the parts of a range that are not there for a read."""


class Index(HotIndex):
    """What a source with records sees in one table.

    Invariants:
        1. ``rows``, if they are there, are those that the lens shows in the table's present rows; and, if joins compute
        rows of the source, in theirs: contexts hold all of its range.
        2. ``begun``, if they are there, are those that it shows in the present rows with keys below ``_reached``.
        3. Not both are there. The ledger has ``counted_bytes`` for them, and they have a ticket if and only if they
           are there.
    """

    __slots__ = (
        "_is_awaited",
        "_left_long",
        "_parse",
        "_reached",
        "_was_evicted",
        "computed_by",
        "last_used",
        "lens",
        "memory",
        "misfits",
        "range",
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
        self.rows = self.begun = None
        self.quick = None if self.lens.is_optional else self.lens.quick
        self.ledger = memory.ledger
        self.has_own_values = self.lens.has_own_values
        #: The end of the keys of the table that the rows that are made so far are of.
        self._reached = b""
        #: Whether memory was too short for the rows made so far; the next slice says so.
        self._was_evicted = False
        #: Whether the slice before ended with a long record, which the parser still has: to free it takes a turn.
        self._left_long = False
        #: Whether it was made for a read that has not used it yet.
        self._is_awaited = False
        #: The joins that compute rows of the source, in their order.
        self.computed_by: tuple[object, ...] = ()
        #: What the database can be asked for beside ranges of its keys; None: nothing, or there is no database.
        self.searched: Gaps | None = None
        self.counted_bytes = 0
        self.ticket: Ticket | None = None
        #: The number of the latest read that used it.
        self.last_used = 0
        #: Why rows of the table were not seen -> how often one was looked at, and the latest such key.
        self.misfits: dict[Misfit, tuple[int, bytes]] = {}

    def look(self, key: bytes, value: bytes | None) -> Shown:
        """Return the plain rows that a row of the table shows."""
        shown = _NOTHING if value is None else self.lens.show(key, value, self._parse)
        return self.lens.absent(key) if isinstance(shown, Misfit) or not shown else shown

    def look_at_new(self, key: bytes, value: bytes | None) -> Shown:
        """Return the same for a row that has just been written; if there are none, count the reason."""
        shown = _NOTHING if value is None else self.lens.show(key, value, self._parse)
        if isinstance(shown, Misfit):
            self._count(shown, key)
            return self.lens.absent(key)
        return shown or self.lens.absent(key)

    def use(self, read_number: int) -> None:
        """Note that a read uses the rows."""
        self.last_used = read_number
        self._is_awaited = False

    @property
    def is_held(self) -> bool:
        """Whether there are rows, all or some, that changes of the table change."""
        return self.rows is not None or self.begun is not None

    def take(self, key: bytes, old: bytes | None, new: bytes | None) -> Iterable[PlainChange]:
        """Bring the rows, if they are there, up to date with the change of a row of the table.

        Returns:
            The plain rows that change.
        """
        rows = self.rows
        if rows is None or new is None or self.lens.each is not None:
            return self._take_all(key, self.look(key, old), self.look_at_new(key, new))
        shown = self.lens.show_row(key, new, self._parse)
        if isinstance(shown, Misfit):
            self._count(shown, key)
            return self._take_all(key, self.look(key, old), _NOTHING)
        plain, value = shown
        was = rows.put(plain, value)
        if was is None:
            gone = self._take_out(rows, key, old)
            self.weigh()
            return [*gone, (plain, None, value)]
        # Only this row shows it, and shows nothing else: the old value is not parsed (invariant 1 of lenses).
        if was == value:
            return ()
        if self.has_own_values and len(was) != len(value):
            self.weigh()
        return ((plain, was, value),)

    def _take_out(self, rows: Table, key: bytes, old: bytes | None) -> list[PlainChange]:
        """Take out the plain row that an old value showed, if it showed one."""
        shown = Misfit.NOT_SELECTED if old is None else self.lens.show_row(key, old, self._parse)
        if isinstance(shown, Misfit):
            return []
        plain, value = shown
        rows.remove(plain)
        return [(plain, value, None)]

    def _take_all(self, key: bytes, before: Shown, after: Shown) -> list[PlainChange]:
        if before == after:
            return []
        self.change(key, before, after)
        both = [(plain, before.get(plain), after.get(plain)) for plain in (before | after if before else after)]
        return [(plain, was, value) for plain, was, value in both if was != value]

    def show(self, rows: Rows) -> Rows:
        """Return the plain rows of some rows of the table, in order.

        Cost:
            O(n log n); parsing takes most of it.
        """
        keys, values = show_all(self.lens, rows.keys, rows.values, self._count, self._parse)
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

    @property
    def takes_slices(self) -> bool:
        """Whether the rows are not made, and take more than a slice."""
        is_long = self.table.entry_count > SLICE_ROWS or self.table.value_bytes > SLICE_BYTES
        return self.rows is None and (self.begun is not None or is_long)

    def build(self) -> Table | None:
        """Make the rows, as `grow` does, at once; return None if memory is too short for them."""
        # In slices, rows would be put into place one by one (bench row: records, indexed).
        while self.grow(maxsize, maxsize) is Growth.MORE:
            pass
        return self.rows

    def grow(self, rows_max: int, bytes_max: int) -> Growth:
        """Make the rows of one slice of the table. If memory is too short, those that were made are dropped.

        Args:
            rows_max: The most rows of the table that the slice has.
            bytes_max: It ends with the row with which the values have this many bytes.

        Requires:
            No join computes rows of the source.

        Cost:
            That of a slice; the rows have an order of their own, so each finds its place by itself. Or, where the slice
            before ended with a long record, that of freeing it.
        """
        if self.rows is not None:
            return Growth.WHOLE
        if self._was_evicted:
            self._was_evicted = False
            return Growth.NO_ROOM
        if self._left_long:
            self._left_long = False
            self._parse.forget()
            return Growth.MORE
        ledger, self.last_used = self.memory.ledger, self.memory.reads.number
        self._is_awaited = True
        while True:
            rows = self.begun or self._begin()
            looked_at, end = self._next_slice(rows_max, bytes_max)
            shown = self.show(looked_at)
            needed_bytes = TABLE + len(shown.keys) * ROW + sum(map(len, shown.keys))
            if ledger.total_bytes + needed_bytes <= ledger.limit_bytes:
                break
            if not self.memory.make_room(needed_bytes):
                self.drop()
                return Growth.NO_ROOM
            # Rows of the table may have been evicted, and with them what was made: look again, now that there is room.
        rows.put_run(shown.keys, shown.values)
        self._reached = end
        self._left_long = bool(looked_at.values) and is_long(looked_at.values[-1])
        self.weigh()
        if end < self.range.last or self._left_long:
            return Growth.MORE
        self.rows, self.begun = rows, None
        return Growth.WHOLE

    def keep(self, shown: Rows) -> None:
        """Take the plain rows of a source whose rows joins compute, unless memory is too short for them.

        Requires:
            They are those of its present rows, which the current read has used.
        """
        if not self.memory.make_room(TABLE + len(shown.keys) * ROW + sum(map(len, shown.keys))):
            return
        rows = self._begin()
        rows.put_run(shown.keys, shown.values)
        self.rows, self.begun = rows, None
        self.weigh()

    def follow(self, computed_by: tuple[object, ...]) -> None:
        """Note which joins compute rows of the source; if others did before, drop the rows."""
        if computed_by != self.computed_by:
            self.drop()
        self.computed_by = computed_by

    def lose(self, first: bytes, last: bytes) -> None:
        """Note that no context holds a range of computed keys any more: its changes are not told."""
        if first < self.range.last and self.range.first < last:
            self.drop()

    def _begin(self) -> Table:
        rows = Table(self.table.prefix)
        rows.cut = None
        rows.regroup(self._cut())
        self.begun, self._reached = rows, self.range.first
        self.ledger.change_indexes(1, 0)
        self.weigh()
        self.memory.enter(self, (_PRIORITY, self.last_used, 0))
        return rows

    def _next_slice(self, rows_max: int, bytes_max: int) -> tuple[Rows, bytes]:
        """Return the next rows of the table that are to be looked at, and the end of their range."""
        keys, values = self.table.slice(self._reached, self.range.last, rows_max)
        count = cut_at(values, bytes_max)
        if count == len(keys) < rows_max:
            return Rows(keys, values), self.range.last
        return Rows(keys[:count], values[:count]), keys[count - 1] + b"\0"

    def evict(self) -> None:
        """Drop the rows because memory is short."""
        self._was_evicted = self.begun is not None
        self.drop()

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

    def change(self, key: bytes, before: Shown, after: Shown) -> None:
        """Change the plain rows of one row of the table, if there are any here."""
        rows = self.rows
        if rows is None and key < self._reached:
            rows = self.begun
        if rows is None:
            return
        if before:
            for plain in before:
                if plain not in after:
                    rows.remove(plain)
        for plain, value in after.items():
            rows.put(plain, value)
        if self.has_own_values or before.keys() != after.keys():
            self.weigh()

    def drop(self) -> None:
        """Drop the rows, all or those that are made so far; nothing changes if there are none."""
        if not self.is_held:
            return
        self.rows = self.begun = None
        self._reached = b""
        self.memory.leave(self)
        self.ledger.change_indexes(-1, -self.counted_bytes)
        self.counted_bytes = 0

    def rank(self) -> Rank:
        """Return its place in the order of eviction: the last. It stays for the reads that wait for it."""
        last_used = self.last_used + WAIT_READS if self._is_awaited else self.memory.last_needed(self.last_used)
        return _PRIORITY, last_used, 0

    def _cut(self) -> Cut:
        """Return how to cut the rows: after the first slot."""
        _, slot, follow, *_ = self.lens.view.pattern.parts
        assert isinstance(slot, Slot), "plain keys have a slot of the key and one of a field, at least"
        assert isinstance(follow, bytes), "a delimiter is between two slots"
        return Cut(None if slot.width is None else slot.width + len(follow))

    def _check(self) -> None:
        assert self.counted_bytes == self.count_bytes() == self._count_rows(), "invariant 3"
        assert (self.ticket is not None) == self.is_held, "invariant 3"
        assert self.rows is None or self.begun is None, "invariant 3"
        rows = self.rows or self.begun
        if rows is not None:
            rows._check()
            last = self.range.last if self.rows is not None else self._reached
            if not self.computed_by:
                self._check_rows(self.table.slice(self.range.first, last))

    def _count_rows(self) -> int:
        rows = self.rows or self.begun
        if rows is None:
            return 0
        keys, values = rows.slice(rows.prefix, rows.end)
        own_bytes = sum(map(len, values)) if self.lens.has_own_values else -BYTES * len(keys)
        return TABLE + len(rows.groups) * GROUP + len(keys) * ROW + sum(map(len, keys)) + own_bytes

    def _check_rows(self, own: Rows) -> None:
        rows, misfits = self.rows or self.begun, dict(self.misfits)
        assert rows is None or rows.slice(rows.prefix, rows.end) == self.show(own), "invariants 1 and 2"
        self.misfits = misfits
