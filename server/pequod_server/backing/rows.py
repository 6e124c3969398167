"""From the records of a statement to rows in key order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final, TypeVar

from pequod_server.backing import timed
from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping, SlotColumn
from pequod_server.backing.store import KeyRange
from pequod_server.backing.values import Cell, compose

T = TypeVar("T", bytes, tuple[bytes, bytes])
Result = TypeVar("Result")
#: Items that are sorted in one step: a millisecond or two.
_SORTED: Final = 4096


def packed(
    mapping: Mapping, records: Iterable[Sequence[Cell]], refuse: Callable[[PackError], None]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each record of the mapping's columns; rows without a key go to ``refuse``.

    Rows that are due are left out.
    """
    names = mapping.columns
    value_at = [names.index(name) for name in mapping.value]
    expires_at = None if mapping.expires is None else names.index(mapping.expires)
    for record in records:
        try:
            key = mapping.key([_text(mapping, slot, cell) for slot, cell in zip(mapping.slots, record, strict=False)])
        except PackError as error:
            refuse(error)
            continue
        value = compose(mapping.value, mapping.form, [record[at] for at in value_at])
        if expires_at is None:
            yield key, value
        elif (lasting := timed.shown(value, record[expires_at].text)) is not None:
            yield key, lasting


def _text(mapping: Mapping, slot: SlotColumn, cell: Cell) -> str | None:
    if cell.kind == "bytes" and mapping.form != "bytes":
        raise PackError(f"column {slot.name} of {mapping.table}", "it holds bytes, and a slot needs text")
    return cell.text


class Clip:
    """Decides which keys lie in any of many ranges.

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

    @property
    def ranges(self) -> list[KeyRange]:
        """The keys of all ranges as ranges that neither overlap nor touch, in order."""
        return [KeyRange(*one) for one in zip(self._firsts, self._lasts, strict=True)]

    def holds(self, key: bytes) -> bool:
        """Return whether the key lies in one of the ranges."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return False
        last = self._lasts[at]
        return last is None or key < last

    def touches(self, one: KeyRange) -> bool:
        """Return whether the range shares a key with one of the ranges."""
        at = bisect_right(self._firsts, one.first) - 1
        if at >= 0 and ((last := self._lasts[at]) is None or one.first < last):
            return True
        return bisect_left(self._firsts, one.last) > at + 1 if one.last is not None else at + 1 < len(self._firsts)


def sorted_in_steps(items: Iterable[T]) -> Generator[None, None, list[T]]:
    """Sort in steps of a few milliseconds.

    Yields:
        None, after each step. The sorted list is what the generator returns.

    Cost:
        Up to the size of a step as `sorted`, above it 1 µs an item: one call for a million items would take a second.
    """
    rest = iter(items)
    pieces: list[list[T]] = []
    while piece := sorted(islice(rest, _SORTED)):
        pieces.append(piece)
        yield
    if len(pieces) == 1:
        return pieces[0]
    found: list[T] = []
    for item in merge(*pieces):
        found.append(item)
        if len(found) % _SORTED == 0:
            yield
    return found


def result_of(steps: Generator[None, None, Result]) -> Result:
    """Run steps to their end and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
