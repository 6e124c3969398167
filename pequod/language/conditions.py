"""Conditions of writes: what the present value of a key has to be, and what came of it.

    put lock|a me, IF_ABSENT          lock|a is absent   ->  written             Met
                                      lock|a is "you"    ->  nothing is written  Unmet(b"you")

An unmet condition is no error. It tells the present value, so that a loop of compare-and-swap needs no second read.

>>> holds(IF_ABSENT, None), holds(IF_PRESENT, b"1"), holds(IfValue(b"1"), b"2")
(True, True, False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, assert_never

from pequod.language.errors import InvalidConditionError


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """The key must not be there."""


@dataclass(frozen=True, slots=True)
class IfPresent:
    """The key must be there, with any value."""


@dataclass(frozen=True, slots=True)
class IfValue:
    """The key must be there, with these bytes as its value."""

    value: bytes


Condition = IfAbsent | IfPresent | IfValue

IF_ABSENT: Final = IfAbsent()
IF_PRESENT: Final = IfPresent()


@dataclass(frozen=True, slots=True)
class Met:
    """The condition held, and the write was done."""

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Unmet:
    """The condition did not hold, and nothing was written."""

    #: The present value of the key; None if it is absent.
    value: bytes | None

    def __bool__(self) -> Literal[False]:
        return False


MET: Final = Met()


def if_value(value: bytes | str) -> IfValue:
    """Return the condition that the key is there and has this value; text is encoded as UTF-8."""
    return IfValue(value.encode() if isinstance(value, str) else value)


# How the wire has them: a number, and the expected value of the third one.
_ABSENT: Final = 1
_PRESENT: Final = 2
_VALUE: Final = 3


def holds(condition: Condition, present: bytes | None) -> bool:
    """Return whether the present value of a key, None if it is absent, meets a condition."""
    match condition:
        case IfAbsent():
            return present is None
        case IfPresent():
            return present is not None
        case IfValue(value):
            return present == value
        case _:
            assert_never(condition)


def coded(condition: Condition) -> tuple[int, bytes]:
    """Return a condition as a number and an expected value, which is empty unless it has one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(condition, Condition):
        raise TypeError(f"{condition!r} is no condition; these are IF_ABSENT, IF_PRESENT and if_value(value)")
    match condition:
        case IfAbsent():
            return _ABSENT, b""
        case IfPresent():
            return _PRESENT, b""
        case IfValue(value):
            return _VALUE, value
        case _:
            assert_never(condition)


def decoded(number: int, expected: bytes) -> Condition:
    """Return the condition of a number and an expected value.

    Raises:
        InvalidConditionError: No condition has this number.
    """
    if number == _ABSENT:
        return IF_ABSENT
    if number == _PRESENT:
        return IF_PRESENT
    if number == _VALUE:
        return IfValue(expected)
    raise InvalidConditionError(number)
