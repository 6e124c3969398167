"""Tails that rows of many contexts have: one object for each of them.

    home|ann|   0120|bob -> Hi   0130|liz -> again           0120|bob   2 rows
    home|eve|   0120|bob -> Hi                               0130|liz   1 row

A fan-out makes one tail for all contexts. Where sources behind the value source decide about each row, every context
computes its rows by itself, so rows are given their tails here.

>>> tails = PythonTails()
>>> ann, eve = tails.share([bytes([48, 124])]), tails.share([bytes([48, 124])])
>>> ann[0] is eve[0], tails.row_count(b"0|"), len(tails), tails.tail_bytes
(True, 2, 1, 2)
>>> tails.release(ann)
>>> tails.release(eve)
>>> len(tails), tails.tail_bytes
(0, 0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pequod.engine.memory.ledger import BYTES, SHARED_TAIL, Ledger
from pequod.native import core


class PythonTails:
    """Tails, and how many rows have each.

    Invariants:
        1. Each tail is once here, with the number of the rows that have it, which is above 0.
        2. ``tail_bytes`` are the bytes of all tails.
    """

    __slots__ = ("_own", "_row_counts", "tail_bytes")

    def __init__(self) -> None:
        self._own: dict[bytes, bytes] = {}
        self._row_counts: dict[bytes, int] = {}
        self.tail_bytes = 0

    def __len__(self) -> int:
        return len(self._own)

    def share(self, tails: list[bytes]) -> list[bytes]:
        """Return the objects for tails, each of which one row more has; O(tails)."""
        for tail in tails:
            if tail not in self._own:
                self._own[tail] = tail
                self._row_counts[tail] = 0
                self.tail_bytes += len(tail)
            self._row_counts[tail] += 1
        return [self._own[tail] for tail in tails]

    def release(self, tails: list[bytes]) -> None:
        """Note that one row less has each of these tails; O(tails).

        Raises:
            KeyError: No row had it.
        """
        for tail in tails:
            self._row_counts[tail] -= 1
            if not self._row_counts[tail]:
                del self._own[tail], self._row_counts[tail]
                self.tail_bytes -= len(tail)

    def row_count(self, tail: bytes) -> int:
        """Return how many rows have a tail."""
        return self._row_counts.get(tail, 0)


Tails = PythonTails
if not TYPE_CHECKING and core is not None:
    Tails = core.Tails


class RowTails:
    """Where the rows of one join have their tails from, with what the ledger has of it.

    Args:
        is_shared: Whether rows of several contexts have one tail; else each has a tail of its own, which its context
            has in the ledger.
    """

    __slots__ = ("_ledger", "is_shared", "shared")

    def __init__(self, ledger: Ledger, *, is_shared: bool) -> None:
        self._ledger = ledger
        self.is_shared = is_shared
        self.shared = Tails()

    @property
    def byte_count(self) -> int:
        """The bytes of the tails that rows share."""
        return len(self.shared) * SHARED_TAIL + self.shared.tail_bytes

    def give(self, tails: list[bytes]) -> list[bytes]:
        """Return the tails of new rows."""
        if not self.is_shared:
            return tails
        count, tail_bytes = len(self.shared), self.shared.tail_bytes
        given = self.shared.share(tails)
        self._ledger.change_tails(len(self.shared) - count, self.shared.tail_bytes - tail_bytes)
        return given

    def release(self, tails: list[bytes]) -> None:
        """Note the tails of rows that have gone."""
        if self.is_shared:
            count, tail_bytes = len(self.shared), self.shared.tail_bytes
            self.shared.release(tails)
            self._ledger.change_tails(len(self.shared) - count, self.shared.tail_bytes - tail_bytes)

    def own_bytes(self, tails: list[bytes], value_bytes: int = 0) -> int:
        """Return what a context has in the ledger for rows, beside their entries."""
        return 0 if self.is_shared else sum([BYTES + value_bytes + len(tail) for tail in tails])
