"""Which keys every worker can answer: base tables of the map, and what its joins compute from them alone.

map       home ranges p| s|      t = check s copy p      seen = copy x         x is no table of the map
bases     p| s|                  the home tells computes of their changes
tables    p| s| t|               seen| is the home's alone, as all other keys are
"""

from __future__ import annotations

from collections.abc import Iterable

from pequod.cluster.map import ClusterMap
from pequod.language.ranges import lower
from pequod.language.spec import DELIMITER
from pequod_server.access.grants import KeyRanges
from pequod_server.cluster.joins import specs_of
from pequod_server.passing.named_ranges import command_ranges
from pequod_server.wire.bounds import Bounds

#: Where ranges start, and where they end (None: nowhere), in order and disjoint.
Ends = tuple[list[bytes], list[bytes | None]]


def common(ranges: Ends | None, others: Ends) -> Ends:
    """Return the keys that are in both; None: all keys.

    >>> common(([b"a", b"m"], [b"c", None]), ([b"b", b"x"], [b"p", b"z"]))
    ([b'b', b'm', b'x'], [b'c', b'p', b'z'])
    """
    if ranges is None:
        return others
    starts: list[bytes] = []
    ends: list[bytes | None] = []
    for first, last in zip(*ranges, strict=True):
        for start, end in zip(*others, strict=True):
            low, high = max(first, start), lower(last, end)
            if high is None or low < high:
                starts.append(low)
                ends.append(high)
    return starts, ends


class SharedTables:
    """The tables that all workers have, by one map."""

    __slots__ = ("bases", "tables")

    def __init__(self, cluster_map: ClusterMap) -> None:
        bases = {home.first.partition(DELIMITER)[0] for home in cluster_map.home_ranges}
        specs = specs_of(cluster_map)
        outputs = {spec.output.table for spec in specs}
        known = outputs | bases
        # What is computed from a table of the home alone is the home's alone, and what is computed from that.
        while fewer := {spec.output.table for spec in specs for one in spec.sources if one.pattern.table not in known}:
            if not fewer & known:
                break
            known -= fewer
        #: Keys that writes of computes go on to the home with.
        self.bases = KeyRanges(name + DELIMITER for name in bases)
        self.tables = KeyRanges(name + DELIMITER for name in known)

    def have(self, ranges: Iterable[Bounds], *, are_written: bool) -> bool:
        """Return whether any worker can do what a call asks for."""
        covers = (self.bases if are_written else self.tables).covers
        return all(covers(first, last) for first, last in ranges)

    def touch(self, ranges: Iterable[Bounds]) -> bool:
        """Return whether a write of ranges changes what other workers are told of."""
        return any(common(([first], [last]), self.bases.bounds)[0] for first, last in ranges)

    def have_batch(self, kinds: bytes, arguments: Iterable[bytes]) -> bool:
        """Return whether any worker can run a batch."""
        return all(self.have((one,), are_written=writes) for writes, one in command_ranges(kinds, arguments))
