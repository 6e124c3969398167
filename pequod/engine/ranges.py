"""Half-open key ranges ``[first, last)``; a ``last`` of None is unbounded.

>>> prefix_end(b"t|ann|")
b't|ann}'
"""

from __future__ import annotations


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


def within(prefix: bytes, first: bytes, last: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the part of ``[first, last)`` that starts with ``prefix``; it may be empty, the first not below the last.

    >>> within(b"t|ann|", b"", None)
    (b't|ann|', b't|ann}')
    """
    return max(prefix, first), lower(prefix_end(prefix), last)
