"""Ranges that may overlap, each with an owner: which of them hold a key, or share a key with a range.

>>> tree = RangeTree()
>>> tree.insert_range(b"t|ann|", b"t|ann}", "a watch")
>>> tree.are_over(b"t|", b"t|ann|5"), tree.are_over(b"t|b", b"t|c"), tree.count
(True, False, 1)
"""

from __future__ import annotations

from intervaltree import IntervalTree


class RangeTree:
    """Ranges with their owners.

    Invariants:
        1. ``count`` is the number of ranges.
    """

    __slots__ = ("_tree", "count")

    def __init__(self) -> None:
        self._tree = IntervalTree()
        self.count = 0

    def insert_range(self, first: bytes, last: bytes, owner: object) -> None:
        """Insert a range, which is not empty."""
        self._tree.addi(first, last, owner)
        self.count = len(self._tree)

    def remove_range(self, first: bytes, last: bytes, owner: object) -> None:
        """Remove a range; nothing changes if it is not there."""
        self._tree.discardi(first, last, owner)
        self.count = len(self._tree)

    def are_over(self, first: bytes, last: bytes) -> bool:
        """Return whether any range shares a key with ``[first, last)``."""
        return self.count > 0 and bool(self._tree.overlap(first, last))
