"""The heat and the size of home ranges, in parts: what advice to move them goes by.

range   [p| .............................................. p})
rows     p|ann|:40    p|bob|:900           p|liz|:60              a sample of those that are in memory
heat                  p|bob|:0.7 s         p|liz|:0.2 s           recent samples of calls
parts   [p| .. p|bob|)[p|bob| .. p|liz|)  [p|liz| ....... p})     cut between groups
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.grouping import grouping
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.engine import Engine
from pequod.language.ranges import prefix_end
from pequod_server.heat.meter import HeatMeter, Recent

#: Parts of a range, by its rows and again by its heat; fewer where there are many ranges.
_PARTS: Final = 8
#: Parts of all ranges.
_PARTS_ALL: Final = 512


def heat_of_ranges(engine: Engine, meter: HeatMeter, known: ClusterMap, group: str) -> Iterator[pb.RangeHeat]:
    """Yield the parts of the home ranges of a home group, in key order; those without rows and heat are left out.

    Cost:
        O(groups of rows, some thousands at most for each range + recent samples): some ms; the caller may let others
        have their turn between two of them.
    """
    mine = [home for home in known.home_ranges if home.group == group]
    recent = sorted(meter.recent(), key=lambda one: one.key)
    keys = [one.key for one in recent]
    count = max(1, min(_PARTS, _PARTS_ALL // max(1, len(mine))))
    group_of = grouping(known.placements).group_of
    for home in mine:
        rows = sorted(engine.sampled(home.first, home.last, count))
        stop = len(keys) if home.last is None else bisect_left(keys, home.last)
        heat = recent[bisect_left(keys, home.first) : stop]
        cuts = _cuts([(group_of(key), float(weight)) for key, weight, _ in rows], count)
        cuts |= _cuts([(group_of(one.key), one.cpu_s) for one in heat], count)
        yield from _parts(home, cuts, rows, heat, meter)


def _cuts(weighed: Iterable[tuple[bytes, float]], count: int) -> set[bytes]:
    """Return keys that cut sorted groups into parts of about equal weight; a heavy group is a part of its own."""
    weights: dict[bytes, float] = {}
    for group, weight in weighed:
        weights[group] = weights.get(group, 0.0) + weight
    total = sum(weights.values())
    found: set[bytes] = set()
    before = 0.0
    for group, weight in weights.items():
        after = before + weight
        if total and int(before * count / total) != int(after * count / total):
            found.add(group)
            if weight * count > total and (end := prefix_end(group)) is not None:
                found.add(end)
        before = after
    return found


def _parts(
    home: HomeRange, cuts: set[bytes], rows: list[tuple[bytes, int, int]], heat: list[Recent], meter: HeatMeter
) -> Iterator[pb.RangeHeat]:
    bounds = [home.first, *sorted(cut for cut in cuts if cut > home.first and (home.last is None or cut < home.last))]
    found = [pb.RangeHeat(first=first, last=last) for first, last in pairwise([*bounds, home.last])]
    for key, count, size in rows:
        part = found[bisect_right(bounds, key) - 1]
        part.keys += count
        part.bytes += size
    scale, window_s = meter.scale, meter.window_s or 1.0
    for one in heat:
        part = found[bisect_right(bounds, one.key) - 1]
        part.cores += one.cpu_s * scale
        if one.is_write:
            part.writes += one.commands / window_s
        else:
            part.reads += one.commands / window_s
    return (part for part in found if part.keys or part.cores)
