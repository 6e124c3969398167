"""From bounds on output keys to bounds on source keys: the tight end of containing ranges (paper §3.1).

A step of a plan knows the source key up to its first unknown slot x, and the output key up to its first unknown
slot. Where both are the same x, a bound on output keys bounds x, and so the source keys:

    output   t|ann|<x>|bob      bounds  t|ann|100 .. t|ann|200      what follows the known part: 100, 200
    source   p|bob|<x>          reads   p|bob|100 .. p|bob|200

Fixed-width slots keep their order, whatever follows them. Delimited ones do not: ``a|`` sorts after ``ab|`` because
``|`` is above the letters, while at the end of a key ``a`` sorts before ``ab``. So it matters on either side whether
the slot is open (a delimiter follows) or ends the key. A contributing key is never left out; where the orders differ,
the range may hold keys that do not contribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER

_BAR = DELIMITER[0]
_AFTER_BAR = bytes((_BAR + 1,))


class Narrowed(NamedTuple):
    """The bytes to append to the known part of the source key; a ``last`` of None is the end of that part's range."""

    first: bytes
    last: bytes | None


#: (bound below, bound above or None for none) -> narrowed.
Narrowing = Callable[[bytes, bytes | None], Narrowed]


def relative(prefix: bytes, first: bytes, last: bytes) -> tuple[bytes, bytes | None] | None:
    """Return the bounds that ``[first, last)`` sets on the bytes after ``prefix``; None if no such key is in it.

    >>> relative(b"t|ann|", b"t|ann|100", b"t|bob|")
    (b'100', None)
    """
    end = prefix_end(prefix)
    if last <= prefix or (end is not None and first >= end):
        return None
    return first[len(prefix) :] if first > prefix else b"", None if end is None or last >= end else last[len(prefix) :]


def fixed_width(width: int) -> Narrowing:
    """Return the narrowing of a slot of exactly ``width`` bytes; `refine` says what longer bounds add."""

    def narrow(first: bytes, last: bytes | None) -> Narrowed:
        if last is None or len(last) <= width:
            return Narrowed(first[:width], last)
        return Narrowed(first[:width], prefix_end(last[:width]))

    return narrow


def refine(width: int, first: bytes, last: bytes | None, tail: bytes) -> Narrowed | None:
    """Narrow a fixed-width slot when ``tail`` is known to follow it in the output key: tight on both sides."""
    lower: bytes | None = first[:width]
    if tail < first[width:]:
        lower = _next(first[:width])
    if lower is None:
        return None
    if last is None or len(last) <= width:
        return Narrowed(lower, last)
    return Narrowed(lower, last[:width] if tail >= last[width:] else prefix_end(last[:width]))


def open_to_open(first: bytes, last: bytes | None) -> Narrowed:
    """Narrow a delimited slot that a delimiter follows on both sides: same order."""
    at = first.find(DELIMITER)
    lower = first if at < 0 else first[: at + 1]
    if last is None:
        return Narrowed(lower, None)
    at = last.find(DELIMITER)
    return Narrowed(lower, last if at < 0 or len(last) == at + 1 else last[:at] + _AFTER_BAR)


def end_to_end(first: bytes, last: bytes | None) -> Narrowed:
    """Narrow a delimited slot that ends the key on both sides: same order."""
    return Narrowed(first, last)


def end_to_open(first: bytes, last: bytes | None) -> Narrowed:
    """Narrow a delimited slot that ends the output key, with a delimiter after it in the source key."""
    at = first.find(DELIMITER)
    lower = first if at < 0 else first[: at + 1]
    if last is None:
        return Narrowed(lower, None)
    if at < 0 and last == first + b"\0":
        # One value: the source keys of others, such as `ba|..`, lie before those of `b|..`.
        return Narrowed(first + DELIMITER, first + _AFTER_BAR)
    at = last.find(DELIMITER)
    value = last if at < 0 else last[:at]
    # The value `b` is below the bound `ba`, but `b|...` sorts after it: if `b` is not below the other bound.
    cut = _first_below_bar(value, first)
    if cut < len(value):
        return Narrowed(lower, value[:cut] + _AFTER_BAR)
    return Narrowed(lower, last if at < 0 else value + _AFTER_BAR)


def open_to_end(first: bytes, last: bytes | None) -> Narrowed:
    """Narrow a delimited slot that ends the source key, with a delimiter after it in the output key."""
    at = first.find(DELIMITER)
    value = first if at < 0 else first[:at]
    # `b|...` is above the bound `ba|`, but the value `b` sorts before `ba`.
    lower = value[: _first_below_bar(value)]
    if last is None:
        return Narrowed(lower, None)
    at = last.find(DELIMITER)
    return Narrowed(lower, last if at < 0 else last[: at + 1])


def _first_below_bar(value: bytes, least: bytes = b"") -> int:
    """Return the length of the shortest proper prefix whose next byte is below the delimiter, else the whole length.

    Args:
        least: The prefix is no less than this.
    """
    return next((at for at in range(1, len(value)) if value[at] < _BAR and value[:at] >= least), len(value))


def _next(value: bytes) -> bytes | None:
    """Return the next value of the same width."""
    end = prefix_end(value)
    return None if end is None else end + b"\0" * (len(value) - len(end))
