"""Columns of commands: what they need to fit their kinds, and where each command has its arguments.

    kinds      PUT        GET  COUNT
    arguments  key value  key  first last
    starts     0          2    3           5

>>> from pequod.commands.kinds import ARGUMENT_COUNTS, COUNT, GET, PUT
>>> starts(bytes([PUT, GET, COUNT]), ARGUMENT_COUNTS)
[0, 2, 3, 5]
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final, NamedTuple

from pequod.commands.kinds import KINDS, WRITES

_KIND_OF: Final = {kind.code: kind for kind in KINDS}


class Needs(NamedTuple):
    """What the kinds of a batch take."""

    argument_count: int
    number_count: int
    #: The smallest byte of the kinds that is no kind; None if there is none.
    unknown: int | None


def needs(kinds: bytes | bytearray) -> Needs:
    """Return what commands of these kinds take.

    Cost:
        0.6 µs for a short batch: kinds are counted, and not looked at one by one.
    """
    argument_count = number_count = known = 0
    for kind in KINDS:
        if count := kinds.count(kind.code):
            known += count
            argument_count += count * len(kind.arguments)
            number_count += count * len(kind.numbers)
            if known == len(kinds):
                return Needs(argument_count, number_count, None)
    unknown = min(set(kinds) - set(_KIND_OF), default=None)
    return Needs(argument_count, number_count, unknown)


def starts(kinds: bytes | bytearray, counts: bytes) -> list[int]:
    """Return where each command begins in a column, and where the column ends.

    Args:
        counts: `ARGUMENT_COUNTS` or `NUMBER_COUNTS`.
    """
    return list(accumulate(kinds.translate(counts), initial=0))


def has_writes(kinds: bytes | bytearray) -> bool:
    """Return whether a command changes anything."""
    return any(code in kinds for code in WRITES)


def has_reads(kinds: bytes | bytearray) -> bool:
    """Return whether a command reads anything."""
    return sum(map(kinds.count, WRITES)) < len(kinds)


def bounds_of(kind: int, first: bytes, second: bytes) -> tuple[bytes, bytes | None]:
    """Return the range that a command looks at or changes: that of a key, or its own, whose empty end is none."""
    return (first, second or None) if _KIND_OF[kind].is_of_range else (first, first + b"\0")
