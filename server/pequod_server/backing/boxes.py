r"""A range of keys as boxes: conditions on single columns that an index can answer.

    p|<poster>|<time:4>, [p|bob|0100, p|bob|0200)    poster = bob, 100 <= time < 200
                         [p|bob|, p|bob})            poster = bob
                         [p|ann|0100, p|bob})        poster = ann, 100 <= time
                                                     ann} <= poster < bob}
                                                     poster = an
                                                     poster = a

The last two are there because keys are not ordered as rows are: `|` sorts above letters, so `p|an|` comes after
`p|ann|`. No box is an OR, each is one stretch of an index, and together they hold every row of the range and few
others; the loader drops those by their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER, Slot
from pequod_server.backing.columns import Column, Term

#: The byte after the delimiter: `bob}` is above every key that begins with `bob|`.
_AFTER = bytes((DELIMITER[0] + 1,))


@dataclass(frozen=True, slots=True)
class Box:
    """One term for each of the first slots; the other columns are free."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts ranges of one pattern into boxes."""

    parts: Sequence[bytes | Slot]
    #: Slot name -> its column; a slot without one, and all after it, are free.
    columns: Mapping[str, Column]

    def boxes(self, first: bytes, last: bytes | None) -> list[Box]:
        """Return boxes that together hold every row whose key lies in ``[first, last)``.

        Cost:
            At most one box for each byte of ``first``, and a few.
        """
        return list(dict.fromkeys(Box(terms) for terms in self._cut(0, first, last)))

    def _cut(self, at: int, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        """Cut the rest of the pattern from part ``at``; the bounds are for the rest of the key."""
        if high is not None and high <= low:
            return
        if at == len(self.parts):
            if not low:
                yield ()
            return
        part = self.parts[at]
        if isinstance(part, bytes):
            yield from self._cut_literal(part, at, low, high)
        elif part.name not in self.columns or any(part == earlier for earlier in self.parts[:at]):
            yield ()
        elif part.width is not None:
            yield from self._cut_fixed(part, part.width, at, low, high)
        elif at + 1 == len(self.parts):
            yield from self._cut_end(part, low, high)
        else:
            yield from self._cut_delimited(part, at, low, high)

    def _cut_literal(self, literal: bytes, at: int, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        if low.startswith(literal):
            low = low[len(literal) :]
        elif low < literal:
            low = b""
        else:
            return
        if high is not None:
            if high.startswith(literal):
                high = high[len(literal) :]
            elif literal < high:
                high = None
            else:
                return
        yield from self._cut(at + 1, low, high)

    def _cut_end(self, slot: Slot, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        if high == low + b"\0":
            yield from self._one(slot, low)
        else:
            yield from self._span(slot, low, high)

    def _cut_fixed(self, slot: Slot, width: int, at: int, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        low_edge = low[:width] if len(low) >= width else None
        high_edge = high[:width] if high is not None and len(high) > width else None
        if low_edge is not None and (low_edge == high_edge or high == prefix_end(low_edge)):
            rest = high[width:] if high is not None and low_edge == high_edge else None
            yield from self._one(slot, low_edge, at, low[width:], rest)
            return
        start: bytes | None = low
        if low_edge is not None and low[width:]:
            yield from self._one(slot, low_edge, at, low[width:], None)
            start = prefix_end(low_edge)
        if start is not None:
            yield from self._span(slot, start, high if high_edge is None else high_edge)
        if high is not None and high_edge is not None:
            yield from self._one(slot, high_edge, at, b"", high[width:])

    def _cut_delimited(self, slot: Slot, at: int, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        low_edge = _edge(low)
        high_edge = None if high is None else _edge(high)
        if low_edge is not None and (low_edge == high_edge or high == low_edge + _AFTER):
            rest = high[len(low_edge) :] if high is not None and low_edge == high_edge else None
            yield from self._one(slot, low_edge, at, low[len(low_edge) :], rest)
            return
        start = low
        if low_edge is not None:
            yield from self._one(slot, low_edge, at, low[len(low_edge) :], None)
            start = low_edge + _AFTER
        # A name that `low` goes on from sorts above it if a delimiter does at that place.
        stem = low if low_edge is None else low_edge
        for length in range(1, len(stem)):
            if stem[length] < DELIMITER[0] and (high is None or stem[:length] + DELIMITER < high):
                yield from self._one(slot, stem[:length])
        if high is None or high_edge is None:
            yield from self._span(slot, start, high)
        else:
            yield from self._span(slot, start, high_edge)
            yield from self._one(slot, high_edge, at, b"", high[len(high_edge) :])
            # Longer names that start like `high_edge` sort below it, for the same reason.
            yield from self._span(slot, max(start, high_edge + b"\0"), high_edge + DELIMITER)

    def _one(
        self, slot: Slot, value: bytes, at: int | None = None, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[tuple[Term, ...]]:
        """Yield boxes in which the slot has one value, and the rest of the key lies in ``[low, high)``."""
        term = self.columns[slot.name].equal(value)
        if term is None:
            return
        if at is None:
            yield (term,)
            return
        for terms in self._cut(at + 1, low, high):
            yield (term, *terms)

    def _span(self, slot: Slot, low: bytes, high: bytes | None) -> Iterator[tuple[Term, ...]]:
        if not low and high is None:
            yield ()
            return
        term = self.columns[slot.name].between(low, high)
        if term is not None:
            yield (term,)


def _edge(bound: bytes) -> bytes | None:
    """Return the bytes before the delimiter in ``bound``; None if it has none."""
    edge, delimiter, _ = bound.partition(DELIMITER)
    return edge if delimiter else None
