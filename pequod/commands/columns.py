"""Columns of commands: what they need to fit their kinds, and the way through them.

    kinds      PUT        GET  COUNT          commands  (0, PUT, key, value)
    arguments  key value  key  first last               (1, GET, key, b"")
    starts     0          2    3           5            (2, COUNT, first, last)

>>> from pequod.commands.kinds import ARGUMENT_COUNTS, COUNT, GET, PUT
>>> starts(bytes([PUT, GET, COUNT]), ARGUMENT_COUNTS)
[0, 2, 3, 5]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from pequod.commands.kinds import ARGUMENT_COUNTS, DECIDED, KIND_OF, KINDS, RANGES, WRITES

#: Writes that have no ids, and are not done once.
_NEVER_ONCE: Final = WRITES - DECIDED
#: The position, the kind and the arguments of a command; the second one is empty where the kind takes one.
Command = tuple[int, int, bytes, bytes]


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
    unknown = min(set(kinds) - set(KIND_OF), default=None)
    return Needs(argument_count, number_count, unknown)


def starts(kinds: bytes | bytearray, counts: bytes) -> list[int]:
    """Return where each command begins in a column, and where the column ends.

    Args:
        counts: `ARGUMENT_COUNTS` or `NUMBER_COUNTS`.
    """
    return list(accumulate(kinds.translate(counts), initial=0))


def commands(
    kinds: bytes | bytearray, arguments: list[bytes], index: int = 0, argument_at: int = 0
) -> Iterator[Command]:
    """Yield the commands from ``index`` on, whose arguments begin at ``argument_at``."""
    for position in range(index, len(kinds)):
        kind = kinds[position]
        width = ARGUMENT_COUNTS[kind]
        yield position, kind, arguments[argument_at], arguments[argument_at + 1] if width > 1 else b""
        argument_at += width


def reads(commands: Iterator[Command]) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
    """Yield the position of each command that reads, and the range that it reads."""
    for position, kind, first, last in commands:
        if kind not in WRITES:
            yield position, bounds_of(kind, first, last)


def has_writes(kinds: bytes | bytearray) -> bool:
    """Return whether a command changes anything."""
    return any(code in kinds for code in WRITES)


def is_harmless_twice(kinds: bytes | bytearray, *, has_ids: bool) -> bool:
    """Return whether no command of a batch changes anything once more when the batch is sent again.

    Args:
        has_ids: The batch has an id, by which the server does each decided write once.
    """
    return not any(map(kinds.count, _NEVER_ONCE if has_ids else WRITES))


def has_reads(kinds: bytes | bytearray) -> bool:
    """Return whether a command reads anything."""
    return sum(map(kinds.count, WRITES)) < len(kinds)


def bounds_of(kind: int, first: bytes, second: bytes) -> tuple[bytes, bytes | None]:
    """Return the range that a command looks at or changes: that of a key, or its own, whose empty end is none."""
    return (first, second or None) if kind in RANGES else (first, first + b"\0")


def range_arguments(first: bytes, last: bytes | None) -> tuple[bytes, bytes]:
    """Return ``[first, last)`` as the arguments of a command, to which an empty end is none.

    No key is below the empty key; the wire has no other form of an empty range.
    """
    if last is None:
        return first, b""
    return (first, last) if last else (b"\0", b"\0")
