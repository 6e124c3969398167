"""The groups of keys that most time goes to, of any number of groups, in bounded memory.

    kept      t|ann| 4.1 s   t|bob| 0.9 s   t|liz| 0.2 s      floor 0.1 s: no group that is not kept took more
    t|eve| 0.3 s comes:      it is kept with 0.4 s, of which 0.1 s may be wrong;  t|liz| goes, and the floor is 0.2 s

Source:
    Space-saving: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams"
    (2005). A second's samples come at once, as sketches are merged: Agarwal et al., "Mergeable Summaries" (2012).

>>> sketch = Sketch(capacity=2)
>>> for group, seconds in ((b"t|ann|", 4.0), (b"t|bob|", 1.0), (b"t|liz|", 0.5)):
...     sketch.add(group, seconds, reads=1.0, writes=0.0)
>>> sketch.shrink()
>>> [(group, one.cpu_s) for group, one in sketch.top(5)], sketch.floor_s
([(b't|ann|', 4.0), (b't|bob|', 1.0)], 0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest


@dataclass(slots=True)
class GroupTime:
    """One group: an upper bound of its time, and by how much it may be off."""

    #: At most: what it took, and what it may have taken before it was kept.
    cpu_s: float
    reads: float
    writes: float
    #: The time that it certainly took is ``cpu_s - error_s``.
    error_s: float


class Sketch:
    """Counts groups.

    Args:
        capacity: How many groups are kept.

    Invariants:
        1. A group that is kept took at most ``cpu_s``, and at least ``cpu_s - error_s``.
        2. No other group took more than ``floor_s``.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._groups: dict[bytes, GroupTime] = {}
        self.floor_s = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: bytes, cpu_s: float, *, reads: float, writes: float) -> None:
        """Count time and commands of a group; `shrink` has to follow before long."""
        one = self._groups.get(group)
        if one is None:
            one = self._groups[group] = GroupTime(self.floor_s, 0.0, 0.0, self.floor_s)
        one.cpu_s += cpu_s
        one.reads += reads
        one.writes += writes

    def shrink(self) -> None:
        """Keep the hottest groups alone.

        Cost:
            O(n log n) for n groups, if there are too many.
        """
        if len(self._groups) <= self._capacity:
            return
        ordered = sorted(self._groups.items(), key=lambda entry: entry[1].cpu_s, reverse=True)
        self.floor_s = max(self.floor_s, ordered[self._capacity][1].cpu_s)
        self._groups = dict(ordered[: self._capacity])

    def fade(self, factor: float) -> None:
        """Have all that was counted so far count for less."""
        self.floor_s *= factor
        for one in self._groups.values():
            one.cpu_s *= factor
            one.reads *= factor
            one.writes *= factor
            one.error_s *= factor

    def top(self, count: int) -> list[tuple[bytes, GroupTime]]:
        """Return the groups that certainly took most, the first of them the most."""
        return nlargest(count, self._groups.items(), key=lambda entry: entry[1].cpu_s - entry[1].error_s)
