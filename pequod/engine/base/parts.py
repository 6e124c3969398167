"""The parts in which loaded ranges are kept, as the evictor sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from pequod.engine.base import presence
from pequod.engine.base.presence import Part, Presence, Removed
from pequod.engine.memory.eviction import HELD, PINNED, WAIT_READS, Evictor, Rank


class Dependant(Protocol):
    """What was computed from loaded rows."""

    def rank(self) -> Rank | None:
        """Return its place in the order of eviction; see `Evictable.rank`."""


class Parts(ABC):
    """Keeps loaded ranges in parts, and ranks these for eviction.

    Args:
        presence: The ranges.
        priority: Data with a lower one is evicted first; PINNED stays.
    """

    __slots__ = ("_priority", "memory", "presence")

    def __init__(self, presence: Presence, memory: Evictor, priority: int) -> None:
        self.presence = presence
        self.memory = memory
        self._priority = priority
        presence.owner = self

    @abstractmethod
    def dependants(self, first: bytes, last: bytes) -> Iterable[Dependant]:
        """Return what was computed from rows of a range, perhaps with others."""

    @abstractmethod
    def is_watched(self, first: bytes, last: bytes) -> bool:
        """Return whether watches hold rows of a range."""

    def add(self, first: bytes, last: bytes, keys: list[bytes]) -> None:
        """Note that a gap is loaded, with these keys.

        Cost:
            O(keys / PART_ROWS_MAX) parts.
        """
        size = presence.PART_ROWS_MAX
        cuts = [first, *keys[size::size], last]
        for at, (start, stop) in enumerate(pairwise(cuts)):
            part, absorbed = self.presence.add(start, stop, min(size, len(keys) - at * size))
            for old in absorbed:
                self._leave(old)
            self._enter(part, self.memory.reads.number + WAIT_READS)

    def remove(self, first: bytes, last: bytes) -> Removed:
        """Note that a range is not loaded any more."""
        removed = self.presence.forget(first, last)
        for part in removed.gone:
            self._leave(part)
        for part in removed.left:
            self._enter(part, self.memory.reads.number)
        return removed

    def disband(self) -> None:
        """Have nothing be a part any more: the ranges are not evicted from now on.

        Cost:
            0.5 µs for each part.
        """
        for part in self.presence:
            self.memory.leave(part)
        self.memory.ledger.change_parts(-len(self.presence))

    def add_whole(self, first: bytes, last: bytes) -> None:
        """Note that a range is loaded whose rows nobody has counted, as one part.

        Requires:
            No key of it is noted as loaded.
        """
        self._enter(self.presence.put(first, last, presence.PART_ROWS_MAX), self.memory.reads.number)

    def cut(self, part: Part, keys: list[bytes], last_used: int) -> None:
        """Cut a part before each of these keys, which ascend within it.

        Args:
            last_used: When the pieces were used, for all that is known.

        Requires:
            Some key is above the first one of the part.
        """
        bounds = [part.first, *(key for key in keys if part.first < key < part.last), part.last]
        self.presence.remove(part.first)
        self._leave(part)
        for first, last in pairwise(bounds):
            piece = self.presence.put(first, last, presence.PART_ROWS_MAX)
            self._enter(piece, last_used)
        # The evictor counts things that are gone.
        self.memory.ledger.count_evictions(len(bounds) - 2)

    def release(self, first: bytes, last: bytes) -> None:
        """Let parts of a range be evicted that no read has used yet."""
        for part in self.presence.over(first, last):
            part.last_used = min(part.last_used, self.memory.reads.number)

    def rank(self, part: Part) -> Rank | None:
        """Return the place of a part in the order of eviction: its dependants were used no later than it.

        Cost:
            O(log frames + dependants).
        """
        if self.is_watched(part.first, part.last):
            return HELD
        priority, last_used = self._priority, self.memory.last_needed(part.last_used)
        for dependant in self.dependants(part.first, part.last):
            rank = dependant.rank()
            if rank is HELD:
                return HELD
            priority, last_used = max(priority, rank[0]), max(last_used, rank[1])
        if last_used < self.memory.reads.number:
            # The part was last used as late as its dependants; it keeps this when they are gone.
            part.last_used = last_used
        return priority, last_used, 1

    def _enter(self, part: Part, last_used: int) -> None:
        part.last_used = last_used
        self.memory.ledger.change_parts(1)
        if self._priority < PINNED:
            self.memory.enter(part, (self._priority, self.memory.reads.number, 1))

    def _leave(self, part: Part) -> None:
        self.memory.ledger.change_parts(-1)
        self.memory.leave(part)
