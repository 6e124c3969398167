"""All base data: tables by name, and the keys without a table.

    store   b"p" -> Table       b"s" -> Table       loose: keys without a delimiter

The whole store is one ordered map: tables are kept in key order beside their dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedList

from pequod.answers.rows import Rows
from pequod.engine.base.deadlines import INSTANT_MAX, Deadlines
from pequod.engine.base.presence import Presence
from pequod.engine.base.rows import SortedRows, merge_layers
from pequod.engine.base.table import Table
from pequod.engine.memory.ledger import ROW
from pequod.language.missing import FirstRows
from pequod.language.ranges import Range, lower, prefix_end
from pequod.language.spec import DELIMITER


class LooseRows:
    """The keys without a table, which are read and written as those of a table are."""

    __slots__ = ("row_bytes", "rows")

    #: No database owns them, and all are here.
    presence: Final = None
    is_paged: Final = False

    def __init__(self) -> None:
        self.rows = SortedRows()
        self.row_bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if it is absent."""
        return self.rows.get(key)

    def is_away(self, _key: bytes) -> bool:
        """Return False: all are here."""
        return False

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key`` and return the value that it had, None if it was absent."""
        old = self.rows.put(key, value)
        self.row_bytes += len(value) + (ROW + len(key) if old is None else -len(old))
        return old

    def remove(self, key: bytes) -> bytes | None:
        """Remove ``key`` and return the value that it had, None if it was absent."""
        old = self.rows.remove(key)
        if old is not None:
            self.row_bytes -= ROW + len(key) + len(old)
        return old


class Store:
    """All base rows: the tables, and the keys without a table."""

    __slots__ = (
        "_order",
        "away_deadlines",
        "away_first_ms",
        "backed",
        "deadlines",
        "expired_count",
        "is_kept",
        "loose",
        "tables",
    )

    def __init__(self) -> None:
        #: Table name -> table, without the delimiter.
        self.tables: dict[bytes, Table] = {}
        #: Keys without a delimiter.
        self.loose = LooseRows()
        #: The backed tables, and the paged ones: those of which ranges may be loaded or not.
        self.backed: list[Table] = []
        #: Of keys that are here, and of no table that a database owns.
        self.deadlines = Deadlines()
        #: Of keys of paged tables that are not here, until what keeps them has these deadlines, too.
        self.away_deadlines: dict[bytes, int] = {}
        #: No deadline that was forgotten since this was set is earlier.
        self.away_first_ms = INSTANT_MAX
        #: Keys that were removed because they were due.
        self.expired_count = 0
        #: Whether a disk has all rows that clients write.
        self.is_kept = False
        self._order: SortedList[bytes] = SortedList()

    def table(self, name: bytes) -> Table:
        """Return the table with a name, made on first use."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table(name + DELIMITER)
            table.is_kept = self.is_kept
            self._order.add(table.prefix)
        return table

    def back(self, name: bytes) -> Presence:
        """Declare that a database owns the keys of a table; return its loaded ranges, which are none yet."""
        table = self.table(name)
        assert not table.entry_count, "tables are declared backed before they are used"
        if table.presence is None:
            self.backed.append(table)
        return table.back()

    def keep(self) -> None:
        """Note that a disk has all rows that clients write, from now on."""
        self.is_kept = True
        for table in self.tables.values():
            table.is_kept = True

    def page_whole(self, table: Table) -> Presence:
        """Declare that a disk has the rows of a table, too; return its loaded ranges, which are to have all of it."""
        assert table.is_kept, "what is evicted is not lost"
        self.backed.append(table)
        return table.back()

    def hold_whole(self, table: Table) -> None:
        """Note that all rows of a paged table are here."""
        self.backed.remove(table)
        table.hold_whole()

    def absent(self, first: bytes, last: bytes | None, read_number: int) -> list[Range]:
        """Return the parts of ``[first, last)`` of backed tables that are not loaded; see `Presence.gaps`."""
        found = []
        for table in self.backed:
            start, stop = table.clip(first, last)
            if start < stop and table.presence is not None:
                found += table.presence.gaps(start, stop, read_number)
        return found

    def lacking(
        self, first: bytes, last: bytes | None, read_number: int, limit: int | None, *, reverse: bool
    ) -> list[Range | FirstRows]:
        """Return what a read of the first rows of a range lacks of it; see `absent`.

        Args:
            limit: How many rows it shows at most, from the end where reading starts; None: all.
        """
        if limit is None or not any(table.is_paged for table in self.backed):
            return [*self.absent(first, last, read_number)]
        found: list[Range | FirstRows] = []
        start, stop = first, last
        reached = self.slice(first, last, limit, reverse=reverse).keys
        if len(reached) >= limit:
            # Whatever is behind these rows, the read does not show it.
            start, stop = (
                (reached[-1] if reached else b"", last)
                if reverse
                else (first, reached[-1] + b"\0" if reached else first)
            )
        gaps: list[Range] = []
        for table in self.backed:
            low, high = table.clip(start, stop) if table.is_paged else table.clip(first, last)
            if low < high and table.presence is not None:
                (gaps if table.is_paged else found).extend(table.presence.gaps(low, high, read_number))
        if gaps and limit:
            found.append(FirstRows(min(gaps).first, max(gaps).last, limit, reverse))
        return found

    @property
    def table_count(self) -> int:
        """The number of tables."""
        return len(self.tables)

    def count_bytes(self) -> tuple[int, int]:
        """Return the memory of all client-written rows with their deadlines, and that of the rows of backed tables.

        Cost:
            O(tables).
        """
        loaded_bytes = sum([table.count_bytes() for table in self.backed])
        total_bytes = self.loose.row_bytes + sum([table.count_bytes() for table in self.tables.values()])
        total_bytes += self.deadlines.byte_count
        return total_bytes - loaded_bytes, loaded_bytes

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if it is absent."""
        name, delimiter, _ = key.partition(DELIMITER)
        if not delimiter:
            return self.loose.get(key)
        table = self.tables.get(name)
        return None if table is None else table.get(key)

    def own_key(self, key: bytes) -> bytes:
        """Return the key that is there, as its row has it: to hold on to this one takes no memory."""
        return self.slice(key, key + b"\0", 1).keys[0]

    def tables_of(self, first: bytes, last: bytes | None) -> list[Table]:
        """Return the tables that may hold keys of ``[first, last)``, in key order."""
        return [*self._tables_in(first, last)]

    def _tables_in(self, first: bytes, last: bytes | None, *, reverse: bool = False) -> Iterator[Table]:
        name, delimiter, _ = first.partition(DELIMITER)
        start = name + delimiter if delimiter else first
        for prefix in self._order.irange(start, last, inclusive=(True, False), reverse=reverse):
            yield self.tables[prefix[:-1]]

    def slice(self, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return the rows of ``[first, last)``; see `SortedRows.slice`."""
        found = Rows([], [])
        # One after the other: a slice of few rows looks at few tables, however many there are.
        for table in self._tables_in(first, last, reverse=reverse):
            wanted = None if limit is None else limit - len(found.keys)
            if wanted == 0:
                break
            rows = table.slice(max(first, table.prefix), lower(last, prefix_end(table.prefix)), wanted, reverse=reverse)
            found.keys.extend(rows.keys)
            found.values.extend(rows.values)
        if not self.loose.rows:
            return found
        return merge_layers([found, self.loose.rows.slice(first, last, limit, reverse=reverse)], limit, reverse=reverse)

    def count(self, first: bytes, last: bytes | None) -> int:
        """Return how many keys ``[first, last)`` holds."""
        tables = self.tables_of(first, last)
        return self.loose.rows.count(first, last) + sum(table.count(first, last) for table in tables)

    def sample(self, first: bytes, last: bytes | None, step: int, groups_max: int) -> Iterator[tuple[bytes, int]]:
        """Yield keys of ``[first, last)``, as `Table.sample` does."""
        yield from self.loose.rows.sample(first, last, step)
        for table in self.tables_of(first, last):
            yield from table.sample(max(first, table.prefix), lower(last, table.end), step, groups_max)

    def _check(self) -> None:
        self.loose.rows._check()
        self.deadlines._check()
        assert [prefix[:-1] for prefix in self._order] == sorted(self.tables, key=lambda name: name + DELIMITER)
        for table in self.tables.values():
            table._check()
