"""What writes of records change in an index beside its rows: the bytes that the ledger has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pequod.engine.base.table import Table
from pequod.engine.memory.ledger import BYTES, GROUP, ROW, TABLE, Ledger
from pequod.language.records import Quick
from pequod.native import core


class HotIndex:
    """What writes of records look at in an index, and change; see `Index`."""

    __slots__ = ("begun", "counted_bytes", "has_own_values", "ledger", "quick", "rows")

    rows: Table | None
    #: The rows that are made so far.
    begun: Table | None
    #: What shows usual records natively, if all of them show rows so.
    quick: Quick | None
    ledger: Ledger
    counted_bytes: int
    #: Whether values of rows are not the table's own, which are counted there.
    has_own_values: bool

    def count_bytes(self) -> int:
        """Return the memory of the rows; values that are the table's own are counted there.

        Cost:
            O(1).
        """
        rows = self.rows or self.begun
        if rows is None:
            return 0
        own_bytes = rows.value_bytes if self.has_own_values else -BYTES * rows.entry_count
        return TABLE + len(rows.groups) * GROUP + rows.entry_count * ROW + rows.key_bytes + own_bytes

    def weigh(self) -> None:
        """Enter into the ledger by how much the rows have grown."""
        counted_bytes = self.count_bytes()
        self.ledger.change_indexes(0, counted_bytes - self.counted_bytes)
        self.counted_bytes = counted_bytes


if not TYPE_CHECKING and core is not None:
    HotIndex = core.HotIndex
