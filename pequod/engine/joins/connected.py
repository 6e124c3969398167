"""Which joins read which, and which compute the same keys.

t2|<a> = copy t1|<a>      reads  t1|<a> = copy t0|<a>         upstream of it
t1|x   = copy u|x         rival of t1|<a>: both may compute t1|x
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from graphlib import TopologicalSorter
from itertools import chain

from pequod.engine.joins.installed import InstalledJoin
from pequod.language.patterns import may_overlap


def connect(
    joins: Collection[InstalledJoin], new: Collection[InstalledJoin], beside: Iterable[InstalledJoin] = ()
) -> None:
    """Determine which joins read new ones and are read by them, and which compute the same keys.

    Args:
        joins: All that are installed.
        new: Those among them that are new.
        beside: Joins beside them, which are read by none.

    Requires:
        ``new`` are the last ones of ``joins``: the lists of a join are in the order of the joins.

    Cost:
        O(joins, and pairs of a new join and one that shares a table with it).
    """
    by_table, new_by_table = _by_table(joins), _by_table(new)
    for join in chain(joins, beside):
        others = by_table if join in new else new_by_table
        for source, upstreams in zip(join.spec.sources, join.upstreams, strict=True):
            found = others.get(source.pattern.table, ())
            upstreams += [other for other in found if may_overlap(source.pattern, other.spec.output)]
        output = join.spec.output
        found = [other for other in others.get(output.table, ()) if other is not join]
        join.rivals += [other for other in found if may_overlap(output, other.spec.output)]


def reconnect(installed: Collection[InstalledJoin], joins: Iterable[InstalledJoin]) -> None:
    """Determine anew which of the installed joins each join reads, and which of them compute the same keys.

    Cost:
        O(joins, and pairs of them that share a table).
    """
    by_table = _by_table(installed)
    for join in joins:
        join.upstreams = [
            [
                other
                for other in by_table.get(source.pattern.table, ())
                if other is not join and may_overlap(source.pattern, other.spec.output)
            ]
            for source in join.spec.sources
        ]
        output = join.spec.output
        found = [other for other in by_table.get(output.table, ()) if other is not join]
        join.rivals = [other for other in found if may_overlap(output, other.spec.output)]


def disconnect(joins: Iterable[InstalledJoin], gone: InstalledJoin) -> None:
    """Forget that joins read one that is gone, and that they compute keys that it did."""
    for join in joins:
        join.upstreams = [[other for other in upstreams if other is not gone] for upstreams in join.upstreams]
        join.rivals = [other for other in join.rivals if other is not gone]


def readers_of(joins: Iterable[InstalledJoin]) -> dict[InstalledJoin, list[InstalledJoin]]:
    """Return the joins that read each join, for those that are read."""
    readers: dict[InstalledJoin, list[InstalledJoin]] = {}
    for join in joins:
        for upstream in dict.fromkeys(chain(*join.upstreams)):
            readers.setdefault(upstream, []).append(join)
    return readers


def upstream_first(joins: Iterable[InstalledJoin]) -> Iterable[InstalledJoin]:
    """Return joins, each after those that it reads."""
    return TopologicalSorter({join: set(chain(*join.upstreams)) for join in joins}).static_order()


def _by_table(joins: Iterable[InstalledJoin]) -> dict[bytes, list[InstalledJoin]]:
    found: dict[bytes, list[InstalledJoin]] = {}
    for join in joins:
        found.setdefault(join.spec.output.table, []).append(join)
    return found
