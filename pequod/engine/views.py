"""Views: which contexts answered a read, so that the same read finds them again without looking at joins and ranges.

    read  [page|ann|7|, page|ann|7|})  -->  article  page|ann|7|a   rank  page|ann|7|r   comments  page|ann|7|c| ...

Several joins often fill one table, interleaved (paper §2.3). Finding their plans, coverage and gaps costs many times
what their rows do. A view is only a hint: it counts as long as its contexts live and hold what they held.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pequod.engine.rows import Rows
from pequod.engine.store import merge_layers

if TYPE_CHECKING:
    from pequod.engine.contexts import Context
    from pequod.engine.joins import InstalledJoin

#: All are forgotten when there are so many: some 20 MB, and quickly made again. The ledger does not count them.
VIEWS_MAX: Final = 50_000
#: One for so many bytes of a limit on memory, if that gives less: a fortieth of it.
_LIMIT_BYTES_EACH: Final = 16_384


class Part:
    """What one context holds of a read."""

    __slots__ = ("context", "first", "last")

    def __init__(self, context: Context, first: bytes, last: bytes) -> None:
        self.context = context
        self.first = first
        self.last = last

    def holds(self, now: float) -> bool:
        """Tell whether the context still holds all of it; it may be stale."""
        context = self.context
        return (
            context.is_live
            and context.is_whole
            and context.first <= self.first
            and self.last <= context.last
            and now <= context.expires_s
        )


class View:
    """The contexts that hold all computed rows of ``[first, last)``, one for each join that has some there."""

    __slots__ = ("last", "parts")

    def __init__(self, last: bytes, parts: list[Part]) -> None:
        self.last = last
        self.parts = parts

    def holds(self, now: float) -> bool:
        """Tell whether the contexts still answer the read."""
        return all(part.holds(now) for part in self.parts)

    def rows(self, base: Rows | None, limit: int | None, *, reverse: bool) -> Rows:
        """Return the rows, with those of the table itself, if there are any, among them."""
        layers = [part.context.slice(part.first, part.last, limit, reverse=reverse) for part in self.parts]
        if base is not None:
            layers.insert(0, base)
        return join_layers(layers, limit, reverse=reverse)


class Views:
    """The views of one engine, by the first key of the read."""

    __slots__ = ("_by_first", "_count_max")

    def __init__(self, limit_bytes: int) -> None:
        self._by_first: dict[bytes, View] = {}
        self.limit(limit_bytes)

    def limit(self, limit_bytes: int) -> None:
        """Keep no more than a small part of a limit on memory holds, from none on."""
        self._count_max = min(VIEWS_MAX, limit_bytes // _LIMIT_BYTES_EACH)
        if len(self._by_first) > self._count_max:
            self.forget()

    def find(self, first: bytes, last: bytes) -> View | None:
        """Return the view of a read, None if there is none."""
        view = self._by_first.get(first)
        return view if view is not None and view.last == last else None

    def remember(self, first: bytes, last: bytes, joins: list[InstalledJoin]) -> None:
        """Note which contexts answered a read, if each join over it keeps what it computes, and in one context.

        What one join alone has in one context of level one is found without a view; see `Engine.scan`.

        Requires:
            The range is materialised and fresh.
        """
        if any(join.is_pull for join in joins):
            return
        if len(joins) == 1 and not joins[0].output.entry_count:
            context = joins[0].level_one(first)
            if context is not None and context.holds(first, last):
                return
        parts = []
        for join in joins:
            plan, _, prefix = join.plan_for(max(first, join.first), min(last, join.last))
            start, stop = max(first, join.first, prefix), min(last, join.last, plan.end_of(prefix))
            if start >= stop:
                continue
            # Not all ranges over the read, of which a large scan in pieces would look at thousands for each piece.
            status = join.coverage.find(start)
            if status is None:
                return
            part = Part(status.context, start, stop)
            if not part.holds(0.0):
                return
            parts.append(part)
        if len(self._by_first) >= self._count_max:
            self._by_first.clear()
        self._by_first[first] = View(last, parts)

    def forget(self) -> None:
        """Forget all views."""
        self._by_first.clear()


def join_layers(layers: list[Rows], limit: int | None, *, reverse: bool) -> Rows:
    """Merge layers; those whose keys do not interleave are put behind each other."""
    filled = [layer for layer in layers if layer.keys]
    if len(filled) <= 1:
        return filled[0] if filled else Rows([], [])
    ordered = sorted(filled, key=_first_key, reverse=reverse)
    for before, after in pairwise(ordered):
        if before.keys[-1] <= after.keys[0] if reverse else before.keys[-1] >= after.keys[0]:
            return merge_layers(layers, limit, reverse=reverse)
    keys: list[bytes] = []
    values: list[bytes] = []
    for layer in ordered:
        keys += layer.keys
        values += layer.values
    return Rows(keys, values) if limit is None else Rows(keys[:limit], values[:limit])


def _first_key(rows: Rows) -> bytes:
    return rows.keys[0]
