"""Which keys belong to which database: disjoint ranges, each with its owner.

    p|            p|m           p}        s|            s}
     [== A =======)[== B =======)          [== A =======)
                                 . . . . .                nobody's

>>> halves = Assignment([(KeyRange(b"p|", b"p|m"), "A"), (KeyRange(b"p|m", b"p}"), "B")])
>>> halves.owner_of(b"p|bob|7"), halves.owner_of(b"p|zoe|7"), halves.owner_of(b"q|1")
('A', 'B', None)
>>> [(piece.first, piece.last, owner) for piece, owner in halves.split(b"p|l", b"q")]
[(b'p|l', b'p|m', 'A'), (b'p|m', b'p}', 'B'), (b'p}', b'q', None)]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from pequod.engine import Loadable, SearchRange
from pequod.errors import UnassignedKeyError
from pequod.language.ranges import Range, lower, prefix_end
from pequod.language.spec import DELIMITER
from pequod_server.backing import KeyRange

OwnerT = TypeVar("OwnerT")


class Assignment(Generic[OwnerT]):
    """Ranges of keys with their owners; it never changes.

    Invariants:
        1. Ranges are not empty, in order and disjoint.

    Raises:
        ValueError: A range is empty, or two overlap.
    """

    __slots__ = ("_firsts", "_owners", "_ranges")

    def __init__(self, ranges: Iterable[tuple[KeyRange, OwnerT]] = ()) -> None:
        found = sorted(ranges, key=lambda one: one[0].first)
        self._ranges = [one for one, _ in found]
        self._owners = [owner for _, owner in found]
        self._firsts = [one.first for one in self._ranges]
        end: bytes | None = b""
        for one in self._ranges:
            if one.last is not None and one.last <= one.first:
                raise ValueError(f"the range from {one.first!r} to {one.last!r} is empty")
            if end is None or one.first < end:
                raise ValueError(f"the range from {one.first!r} overlaps the one before it")
            end = one.last

    def owner_of(self, key: bytes) -> OwnerT | None:
        """Return the owner of a key; None if it has none."""
        at = bisect_right(self._firsts, key) - 1
        return self._owners[at] if at >= 0 and self._ranges[at].holds(key) else None

    def split(self, first: bytes, last: bytes | None) -> Iterator[tuple[KeyRange, OwnerT | None]]:
        """Yield the pieces of a range in order, each with its owner; None for a piece without an owner."""
        for at in range(max(bisect_right(self._firsts, first) - 1, 0), len(self._ranges)):
            one, owner = self._ranges[at], self._owners[at]
            if last is not None and (first >= last or one.first >= last):
                break
            if one.last is not None and one.last <= first:
                continue
            if first < one.first:
                yield KeyRange(first, one.first), None
                first = one.first
            end = lower(one.last, last)
            yield KeyRange(first, end), owner
            if end is None:
                return
            first = end
        if last is None or first < last:
            yield KeyRange(first, last), None

    def owners_of(self, first: bytes, last: bytes | None) -> Iterator[OwnerT]:
        """Yield the owners of the parts of a range, some more than once."""
        return (owner for _, owner in self.split(first, last) if owner is not None)

    def ranges_of(self, owner: OwnerT) -> tuple[KeyRange, ...]:
        """Return the ranges of an owner."""
        return tuple(one for one, other in zip(self._ranges, self._owners, strict=True) if other is owner)

    def divided(self, lacking: Iterable[Loadable]) -> dict[OwnerT, list[Loadable]]:
        """Return the pieces of what reads lack, by their owners.

        Raises:
            UnassignedKeyError: A range has no owner.
        """
        found: dict[OwnerT, list[Loadable]] = {}

        def add(piece: Loadable, first: bytes, owner: OwnerT | None) -> None:
            if owner is None:
                raise UnassignedKeyError(first)
            found.setdefault(owner, []).append(piece)

        for one in lacking:
            if isinstance(one, SearchRange):
                first = one.search.keys.first
                add(one, first, self.owner_of(first))
                continue
            for part, owner in self.split(*one):
                assert part.last is not None, "ranges that reads lack end"
                add(Range(part.first, part.last), part.first, owner)
        return found

    def changes(self, after: Assignment[OwnerT]) -> Iterator[tuple[KeyRange, OwnerT | None, OwnerT | None]]:
        """Yield the ranges that have another owner in a later assignment, with both owners."""
        for piece, old in self.split(b"", None):
            for part, new in after.split(piece.first, piece.last):
                if new is not old:
                    yield part, old, new


def overlap(ranges: Iterable[KeyRange], others: Iterable[KeyRange]) -> list[KeyRange]:
    """Return the parts of ranges that lie in any of other ranges, which are disjoint.

    >>> overlap([KeyRange(b"a", b"f")], [KeyRange(b"", b"b"), KeyRange(b"d", None)])
    [KeyRange(first=b'a', last=b'b'), KeyRange(first=b'd', last=b'f')]
    """
    owned = Assignment((one, True) for one in others)
    return [piece for one in ranges for piece, is_owned in owned.split(one.first, one.last) if is_owned]


def tables_of(ranges: Iterable[KeyRange]) -> list[bytes]:
    """Return the names of the tables that ranges lie in, each once.

    Raises:
        ValueError: A range is not within one table, so its tables cannot be told.
    """
    names: dict[bytes, None] = {}
    for one in ranges:
        name, delimiter, _ = one.first.partition(DELIMITER)
        end = prefix_end(name + DELIMITER)
        if not delimiter or one.last is None or end is None or one.last > end:
            raise ValueError(f"the range from {one.first!r} to {one.last!r} is not within one table, as p| .. p}} is")
        names[name] = None
    return list(names)
