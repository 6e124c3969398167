"""How much a batch of a stream may hold: the rows and bytes that are left of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(slots=True)
class Budget:
    """What a batch may still take; None for no limit.

    Invariants:
        1. Something is always taken of a budget that is whole, so that a row above the limit stops no query.
    """

    rows: int | None = None
    size_bytes: int | None = None
    is_whole: bool = True

    @property
    def is_spent(self) -> bool:
        """Whether nothing more fits."""
        return not self.is_whole and (self.rows == 0 or (self.size_bytes is not None and self.size_bytes <= 0))

    def admit(self, sizes: Any) -> int:
        """Return how many of some rows fit, of these sizes in their order, and take them off."""
        count = len(sizes)
        if self.rows is not None:
            count = min(count, self.rows)
        if self.size_bytes is not None:
            ends = np.cumsum(sizes)
            count = min(count, int(np.searchsorted(ends, self.size_bytes, side="right")))
            if not count and self.is_whole and len(sizes):
                count = 1
            used = int(ends[count - 1]) if count else 0
            # What did not fit ends the batch, so that no later row overtakes it.
            self.size_bytes = self.size_bytes - used if count == len(sizes) else 0
        if self.rows is not None:
            self.rows -= count
        self.is_whole = self.is_whole and not count
        return count
