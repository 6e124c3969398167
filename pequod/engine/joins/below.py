"""Which contexts a read shows, directly or through others: if one of them is wrong or old, so are the read's rows.

best|<author> = pull copy karma|<author>              nothing is kept: a read of best|ann shows karma|ann
kept|<author> = snapshot 10 copy karma|<author>       a new snapshot shows karma|ann as well
page|<author>|<id> = ... copy karma|<author>          its context knows the contexts of karma that it was computed from
"""

from __future__ import annotations

from collections.abc import Iterable

from pequod.answers.rows import Rows
from pequod.engine.base.range_map import gaps_between
from pequod.engine.base.rows import merge_layers
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin, join_of


def shown_by(joins: Iterable[InstalledJoin], first: bytes, last: bytes | None) -> list[Context]:
    """Return the contexts whose rows a read of a range shows now.

    Args:
        joins: All joins over the range.
        first: The first key of the range.
        last: Its end; None: the end of all keys.

    Cost:
        O(contexts in the range); for joins that are not kept up to date, of all joins below.
    """
    joins = list(joins)
    found = [status.context for join in joins for status in join.coverage.over(*join.clip(first, last))]
    return found + _below([join for join in joins if not join.is_push])


def filled_from(joins: Iterable[InstalledJoin], first: bytes, last: bytes | None) -> list[Context]:
    """Return the contexts that filling the gaps of a range reads, perhaps with others; arguments as in `shown_by`."""
    bounds = [(join, *join.clip(first, last)) for join in joins]
    return _below([join for join, start, stop in bounds if gaps_between(join.coverage.over(start, stop), start, stop)])


def read_for(context: Context) -> Iterable[Context]:
    """Return the contexts that a context was computed from, or those that a snapshot reads when it is taken anew."""
    join = join_of(context)
    return context.upstreams if join.is_push else _below([join])


def _below(joins: list[InstalledJoin]) -> list[Context]:
    """Return the contexts of all joins that joins read, directly or through others."""
    below: dict[InstalledJoin, None] = {}
    todo = list(joins)
    while todo:
        new = [up for ups in todo.pop().upstreams for up in ups if up not in below]
        below.update(dict.fromkeys(new))
        todo += new
    return [status.context for join in below for status in join.coverage]


def present_rows(join: InstalledJoin, number: int, first: bytes, last: bytes) -> Rows:
    """Return the present rows of a range of a source whose rows joins compute, all of which are materialised."""
    layers = [join.source_tables[number].slice(first, last)]
    for upstream in join.upstreams[number]:
        start, stop = upstream.clip(first, last)
        assert start >= stop or not upstream.coverage.gaps(start, stop), "invariant 1 of indexes"
        layers.append(upstream.coverage.slice(start, stop))
    return merge_layers(layers)
