"""What is done to keep an engine within its memory, and to make it compute again."""

from __future__ import annotations

from pequod.engine.calls.composed import Composed


class MemoryCalls(Composed):
    """Eviction, by limits and by hand, and dropping what is to be computed again."""

    def limit_memory(self, limit_bytes: int) -> None:
        """Change the limit; data above it are evicted now, if they can be."""
        self.ledger.limit(limit_bytes)
        self._hits.limit(limit_bytes)
        self.make_room()

    def weigh(self) -> None:
        """Bring the ledger's estimates up to date, unless that costs more than the changes since did.

        Cost:
            O(tables), at most once in a quarter as many changes.
        """
        self._memory.weigh_again(self.revision)

    def make_room(self, spare_bytes: int = 0) -> bool:
        """Evict what is above the limit; return whether it is held now, with ``spare_bytes`` to spare.

        Cost:
            O(tables), and of the victims.
        """
        self._reads.begin()
        self._memory.weigh(self.revision)
        return self._memory.make_room(spare_bytes)

    def has_room(self, spare_bytes: int) -> bool:
        """Return whether as many bytes are free, if need be after an eviction.

        Cost:
            O(1) while they are, by the ledger as it was weighed last; else that of `make_room`.
        """
        ledger = self.ledger
        return ledger.total_bytes + spare_bytes <= ledger.limit_bytes or self.make_room(spare_bytes)

    def evict_ahead(self, goal_bytes: int, step_bytes: int) -> bool:
        """Evict a little, so that calls need not; return whether the goal is not reached and more can be evicted.

        Args:
            goal_bytes: The bytes that all data may take at the end.
            step_bytes: The bytes to evict now, or a little more.
        """
        self._reads.begin()
        return self._memory.shrink_some(goal_bytes, step_bytes)

    def evict(self, count: int) -> int:
        """Drop ``count`` of the least recently used contexts and loaded parts, or a few more; return their number.

        Dependants are dropped as well. Watched and pinned data stay, and so does the data that they depend on.
        """
        self._reads.begin()
        return self._memory.evict_some(count)

    def invalidate(self, first: bytes, last: bytes | None) -> int:
        """Drop the computed rows of a range, and those that they were computed from; reads compute them again.

        Returns:
            The number of contexts; contexts that depend on them were dropped as well.

        Cost:
            O(frames of what is dropped).
        """
        if last is not None and first >= last:
            return 0
        count = self._catalog.invalidate(first, last)
        # So that a watch can distinguish the changes that follow from earlier ones.
        self.revision += bool(count)
        return count

    def invalidate_join(self, name: str) -> int:
        """Drop everything that a join computed, as `invalidate` does.

        Raises:
            UnknownJoinError: No join has this name.
        """
        join = self._catalog.find(name)
        return self.invalidate(join.first, join.last)

    def drop_snapshots(self, first: bytes, last: bytes | None, since_s: float) -> int:
        """Have the next read of a range take the snapshots anew that were taken before a moment.

        Returns:
            How many there were; contexts that depend on them were dropped as well.

        Cost:
            O(contexts in the range + those with snapshots below them).
        """
        if last is not None and first >= last:
            return 0
        return self._catalog.drop_snapshots(first, last, since_s)
