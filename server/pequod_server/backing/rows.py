"""From what a statement returned to rows in the order of their keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.store import KeyRange
from pequod_server.backing.values import Cell, compose


def packed(
    mapping: Mapping, records: Iterable[Sequence[Cell]], refuse: Callable[[PackError], None]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each record of the mapping's columns; rows without a key go to ``refuse``."""
    names = mapping.columns
    slots = names[: len(mapping.slots)]
    value_at = [names.index(name) for name in mapping.value]
    for record in records:
        try:
            key = mapping.key(
                {name: _slot_text(mapping, name, cell) for name, cell in zip(slots, record, strict=False)}
            )
        except PackError as error:
            refuse(error)
            continue
        yield key, compose(mapping.value, mapping.as_object, [record[at] for at in value_at])


def _slot_text(mapping: Mapping, name: str, cell: Cell) -> str | None:
    if cell.kind == "bytes":
        raise PackError(f"column {name} of {mapping.table}", "it holds bytes, and a slot needs text")
    return cell.text


class Clip:
    """Tells which keys lie in any of many ranges.

    Cost:
        O(log ranges) a key.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        self._firsts: list[bytes] = []
        self._lasts: list[bytes | None] = []
        for one in sorted(ranges, key=lambda one: one.first):
            if self._firsts and (self._lasts[-1] is None or one.first <= self._lasts[-1]):
                if self._lasts[-1] is not None and (one.last is None or one.last > self._lasts[-1]):
                    self._lasts[-1] = one.last
            else:
                self._firsts.append(one.first)
                self._lasts.append(one.last)

    def holds(self, key: bytes) -> bool:
        """Tell whether the key lies in one of the ranges."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return False
        last = self._lasts[at]
        return last is None or key < last
