"""Half-open key ranges ``[first, last)``; a ``last`` of None is unbounded.

>>> prefix_end(b"t|ann|")
b't|ann}'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Range(NamedTuple):
    """The keys ``[first, last)``."""

    first: bytes
    last: bytes


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest key above every key that starts with ``prefix``; None if there is none.

    Source:
        Paper §2.1, footnote 1.
    """
    if prefix and prefix[-1] != 0xFF:
        return prefix[:-1] + bytes((prefix[-1] + 1,))
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def lower(a: bytes | None, b: bytes | None) -> bytes | None:
    """Return the lower of two upper bounds, where None is unbounded."""
    if a is None:
        return b
    return a if b is None else min(a, b)


def united(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the keys of all ranges as ranges that neither overlap nor touch, in order.

    >>> united([Range(b"c", b"d"), Range(b"a", b"b"), Range(b"b", b"c")])
    (Range(first=b'a', last=b'd'),)
    """
    found: list[Range] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].last:
            found[-1] = Range(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def within(prefix: bytes, first: bytes, last: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the part of ``[first, last)`` that starts with ``prefix``; empty if its first is not below its last.

    >>> within(b"t|ann|", b"", None)
    (b't|ann|', b't|ann}')
    """
    return max(prefix, first), lower(prefix_end(prefix), last)
