"""What the owner of a backed table's keys tells an engine, and asks of it.

load     a range as the database has it      release   no reader waits for it any more
apply    a change of the database            forget    its reads ask for it again
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pequod.answers.rows import Rows
from pequod.engine.calls.memory import MemoryCalls
from pequod.engine.memory.eviction import VALUE_STEP
from pequod.engine.memory.ledger import ROW, UNLIMITED
from pequod.engine.reads.foreseeing import foresee
from pequod.language.missing import RangeRows, SearchRange
from pequod.language.ranges import Range
from pequod.native import core


class Applied(NamedTuple):
    """What became of changes of a database."""

    #: The place of the first change that is not applied yet.
    stop: int
    #: How many of the changes before it are of keys in loaded ranges.
    applied: int


class DatabaseCalls(MemoryCalls):
    """Backed tables: their rows come from databases, range by range."""

    def back(self, names: Iterable[bytes]) -> None:
        """Declare that databases own the keys of these tables from now on, too.

        What joins have computed from the tables is dropped.

        Raises:
            ValueError: Clients have written keys of a table, or a join computes some; nothing is changed.

        Cost:
            O(contexts of the joins that read the table).
        """
        if self._backed.back(names):
            self._hits.clear()
            self.backfills.review()
            self.revision += 1

    def owned_by_database(self, key: bytes, value: bytes = b"") -> bool:
        """Return whether a database owns the key, so that a put of it would raise BackedKeyError.

        Raises:
            InvalidKeyError, LimitExceededError, ComputedKeyError: As `put`.
        """
        return self._admission.is_of_database(key, value)

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
        self.load_all((RangeRows(first, last, rows),))

    def load_all(self, loads: Sequence[RangeRows]) -> None:
        """Load several ranges, as `load` does one, twenty in half the time (bench row: feed: load).

        Raises:
            LimitExceededError: There is no memory for all of them, even after eviction; nothing of them is loaded now.
        """
        self.revision += self._backed.load(loads, self._reads.begin())
        if self.ledger.limit_bytes < UNLIMITED:
            self._backed.refuse_overfull(loads, self.revision)

    def apply(self, key: bytes, value: bytes | None) -> bool:
        """Apply a change of the database: the key's new value, None if it is gone.

        Returns:
            Whether the key lies in a loaded range of a backed table; if not, the change is ignored.
        """
        return self.apply_some(((key, value),), 0, 1).applied > 0

    def apply_some(self, changes: Sequence[tuple[bytes, bytes | None]], start: int, work_max: int) -> Applied:
        """Apply changes of the database, as `apply` does, from one on.

        Args:
            changes: A tuple or a list.
            start: The place of the first change to apply.
            work_max: No further change is begun after this many changes of loaded keys, and rows that follow from them.

        Cost:
            Some 0.3 µs for a change in one timeline (bench row: feed: apply).
        """
        if core is not None:
            done = Applied(*core.apply_loaded(self, changes, start, work_max))
            if done.stop > start:
                return done
        stop = start
        while stop < len(changes) and not self._backed.is_followed(changes[stop][0]):
            stop += 1
        if stop == len(changes):
            return Applied(stop, 0)
        key, value = changes[stop]
        is_changed = self._backed.apply(key, value)
        if is_changed:
            self.revision += 1
            if value is not None and len(value) > self._value_bytes_quick:
                self.ledger.weigh_sooner(len(value) // VALUE_STEP)
            if self.revision >= self.ledger.weigh_at:
                self.make_room()
        return Applied(stop + 1, is_changed is not None)

    def foresee(self, keys: Iterable[bytes]) -> list[Range]:
        """Return the ranges that are not loaded, and that timelines will lack because these keys have changed.

        A timeline that is not read for many changes is passed over. To load none of this is no mistake.

        Cost:
            For each key, O(timelines that wait for it); 5 µs for one (bench row: feed: foresee).
        """
        return foresee(self._directory.by_name, keys, self._reads.number)

    def release(self, first: bytes, last: bytes | None) -> None:
        """Note that the read for which a range was loaded has been given up: its rows may be evicted like others.

        Rows that were loaded and not read yet are kept for a while, so that reads do not evict what others wait for.
        """
        self._backed.release(first, last)

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

    def row_bytes(self, rows: Sequence[tuple[bytes, bytes]]) -> int:
        """Return the bytes that rows take when they are loaded."""
        return sum([ROW + len(key) + len(value) for key, value in rows])

    def refuse_rows(self, row_bytes: int) -> None:
        """Refuse a load that would not fit even after eviction, before anything is evicted for a part of it.

        Raises:
            LimitExceededError: There is no memory for ``row_bytes``.
        """
        self._memory.refuse_beyond(row_bytes)

    def loaded(self) -> list[Range]:
        """Return the loaded ranges of the backed tables."""
        return self._backed.loaded()

    @property
    def loaded_range_count(self) -> int:
        """The number of parts in which the loaded ranges are kept; a large range is in several."""
        return self._backed.part_count

    def count_loaded(self, first: bytes, last: bytes | None) -> int:
        """Return the number of parts in which a range is loaded, of tables whose ranges are loaded by key.

        Cost:
            O(log parts) for each table of the range.
        """
        return self._backed.count_over(first, last)

    def absent(self, first: bytes, last: bytes | None) -> list[Range]:
        """Return the parts of a range, within backed tables, that are not loaded, in order.

        Cost:
            O(parts in the range).
        """
        return self._backed.absent(first, last)

    def part_of(self, key: bytes) -> Range | None:
        """Return a loaded range that holds a key of a backed table; None if the key is not loaded.

        Cost:
            O(log parts): 1 µs.
        """
        part = self._backed.part_of(key)
        return None if part is None else part.range

    def is_loaded(self, key: bytes) -> bool:
        """Return whether a key of a backed table is loaded.

        Cost:
            As `part_of`.
        """
        return self._backed.part_of(key) is not None

    def is_followed(self, key: bytes) -> bool:
        """Return whether a change of a key of a backed table may matter: it is loaded, or its table is searched.

        Cost:
            As `part_of`.
        """
        return self._backed.is_followed(key)

    def reads_backed(self, first: bytes, last: bytes | None) -> bool:
        """Return whether a read of the range shows rows of a backed table, directly or through joins."""
        return self._backed.are_read(first, last)

    def backed_reads(self, first: bytes, last: bytes | None) -> tuple[Range, ...]:
        """Return the ranges of backed tables of which a read of the range may show rows, directly or through joins.

        A join counts with all keys that its sources can have, whatever part of its output is read.
        """
        return self._backed.read_ranges(first, last)

    def report_forgotten(self) -> None:
        """Keep from now on which loaded ranges are forgotten or evicted, for a caller of `forgotten`."""
        self._backed.report_forgotten()

    def forgotten(self) -> list[Range]:
        """Return the ranges that were forgotten or evicted since the last call; they may be loaded again meanwhile.

        Requires:
            `report_forgotten` has been called; this is called again and again, since they are kept until then.
        """
        return self._backed.take_forgotten()

    def base_rows(self, first: bytes = b"", last: bytes | None = None, limit: int | None = None) -> Rows:
        """Return base rows that are here, of clients and of the loaded ranges of backed tables, in key order.

        Args:
            limit: The greatest number of rows, the first of ``[first, last)``.
        """
        return self._backed.without_found(self._store.slice(first, last, limit))
