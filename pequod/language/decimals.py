"""Numbers as values of keys: decimals in plain notation, of which `sum` joins and adds make exact sums.

    12  +1.50  .5  007            numbers
    1e3  twelve  (nothing)        none, as is what takes more than 64 bytes

>>> added(b"stock|42", b"0.1", b"0.2"), added(b"stock|42", None, b"-3"), added(b"stock|42", b"1.50", b"+.5")
(b'0.3', b'-3', b'2')
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from typing import Final

from pequod.language.errors import InvalidDeltaError, NotNumberError, SumTooLongError

#: A longer text does not count as a number, so that exact sums stay small.
NUMBER_BYTES_MAX: Final = 64
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)").fullmatch
# Two numbers of 64 digits before and after the point add up exactly; the trap proves it.
_EXACT: Final = Context(prec=160, traps=[Inexact])
#: A mean has as many significant digits as IEEE 754's decimal128.
_MEAN: Final = Context(prec=34, rounding=ROUND_HALF_EVEN)


def parse_number(value: bytes) -> Decimal | None:
    """Return the number that ``value`` is in plain decimal notation, None if it is text."""
    if len(value) > NUMBER_BYTES_MAX or _NUMBER(value) is None:
        return None
    return Decimal(value.decode("ascii"))


def print_number(number: Decimal) -> bytes:
    """Return the one canonical text of a number: no exponent, no trailing zeros, no negative zero.

    >>> print_number(Decimal("-0.0")), print_number(Decimal("1.50")), print_number(Decimal("100"))
    (b'0', b'1.5', b'100')
    """
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text in ("-0", "") else text.encode("ascii")


def mean(total: Decimal, count: int) -> Decimal:
    """Return the mean of ``count`` numbers, to 34 significant digits; of a half, to the even digit.

    >>> print_number(mean(Decimal("1.5"), 2)), print_number(mean(Decimal(1), 3))
    (b'0.75', b'0.3333333333333333333333333333333333')
    """
    return _MEAN.divide(total, Decimal(count))


def number_of_delta(delta: bytes) -> Decimal:
    """Return the number that is to be added.

    Raises:
        InvalidDeltaError: It is none.
    """
    number = parse_number(delta)
    if number is None:
        raise InvalidDeltaError(delta)
    return number


def added(key: bytes, present: bytes | None, delta: bytes) -> bytes:
    """Return the sum of the present value of a key, 0 if it is absent, and of a delta: the new value.

    Raises:
        InvalidDeltaError, NotNumberError: The delta, or the present value, is no number.
        SumTooLongError: The sum takes more bytes than a number may have.
    """
    number = number_of_delta(delta)
    before = Decimal() if present is None else parse_number(present)
    if before is None:
        raise NotNumberError(key)
    total = print_number(_EXACT.add(before, number))
    if len(total) > NUMBER_BYTES_MAX:
        raise SumTooLongError(key, NUMBER_BYTES_MAX)
    return total
