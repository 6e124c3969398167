"""Numbers of records, which keep all their digits, and the one text of each number.

    in the record        here                in a slot <x>           by itself
    7, 7.0, 70e-1        7                   7                       7
    1.50                 1.5, a float        1.5                     1.5
    1e30                 1e30, a float       1e30                    1000000000000000000000000000000
    12345678901234567.89 a Decimal           12345678901234567.89    12345678901234567.89
    1e400                a Decimal           1e400                   1e400
    1e9999999999         `Vast`              -                       -

A float stands for its shortest decimal, so 0.1 is a tenth; a number that no float stands for is a `Decimal`. Equal
numbers have equal texts, however they are written.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

#: A number of a record.
Number: TypeAlias = int | float | Decimal
#: A number by itself has an exponent only if its digits take more bytes: longer ones are no numbers for `sum`.
NUMBER_BYTES_MAX: Final = 64
#: Integers up to it are always written as their digits.
_INTEGER_MAX: Final = 1 << 64
#: Up to it, each integer is a float of its own.
FLOAT_INTEGER_MAX: Final = 1 << 53
#: The shortest decimal of a float has up to these digits; no float has more of its own, in binary, than the second.
_SHORTEST_DIGITS_MAX: Final = 17
_FLOAT_DIGITS_MAX: Final = 767
#: Smaller fractions are written with an exponent.
_PLACES_MAX: Final = 5
#: `Decimal` takes larger exponents, not those of any size.
_EXPONENT_DIGITS_MAX: Final = 9


class Vast(NamedTuple):
    """A number whose exponent has more digits than is of use: no form, and equal to nothing."""

    text: str


class _Split(NamedTuple):
    """A number as ``sign d.ddd * 10**exponent``."""

    sign: str
    #: Without zeros at the end; the first is none.
    digits: str
    exponent: int

    @property
    def is_integer(self) -> bool:
        return self.exponent >= len(self.digits) - 1

    @property
    def plain_size(self) -> int:
        """The characters of `plain`, which may be too many for memory."""
        if self.is_integer:
            return len(self.sign) + self.exponent + 1
        return len(self.sign) + len(self.digits) + 1 + max(0, -self.exponent)

    def plain(self) -> str:
        """Return the text without an exponent."""
        sign, digits, exponent = self
        if self.is_integer:
            return sign + digits.ljust(exponent + 1, "0")
        if exponent >= 0:
            return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"

    def scientific(self) -> str:
        """Return the text with an exponent."""
        point = "." if len(self.digits) > 1 else ""
        return f"{self.sign}{self.digits[0]}{point}{self.digits[1:]}e{self.exponent}"


def read_number(text: str) -> Number | Vast:
    """Return the number of a JSON number: an integer of 64 bits, a float that stands for it, or a decimal.

    >>> read_number("7.0"), read_number("0.1"), read_number("1e999999999"), read_number("0.1000000000000000055")
    (7, 0.1, Decimal('1E+999999999'), Decimal('0.1000000000000000055'))

    Cost:
        O(length of the text), whatever its exponent is.
    """
    if "." in text and "e" not in text and "E" not in text and not text.endswith("0") and repr(float(text)) == text:
        # As printers of doubles write them.
        return float(text)
    mantissa, _, exponent = text.lower().partition("e")
    if not mantissa.strip("-0."):
        return 0
    if len(exponent.lstrip("+-0")) > _EXPONENT_DIGITS_MAX:
        return Vast(text)
    number = Decimal(text)
    integer = as_integer(number)
    if integer is not None and -(_INTEGER_MAX >> 1) <= integer < _INTEGER_MAX:
        # Other integers are too large for the printer.
        return integer
    if len(_split(number).digits) > _SHORTEST_DIGITS_MAX:
        return number
    double = float(number)
    return double if exact(double) == number else number


def exact(number: Number) -> Decimal:
    """Return the decimal that a number stands for; an infinite one is infinite."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def as_integer(number: Number) -> int | None:
    """Return an integer up to 2**64; None if the number is none, or larger."""
    if isinstance(number, int):
        return number
    if isinstance(number, float):
        if not number.is_integer():
            return None
        if -FLOAT_INTEGER_MAX <= number <= FLOAT_INTEGER_MAX:
            return int(number)
        number = Decimal(repr(number))
    # The bounds come first: the digits of a large exponent would fill the memory.
    if not -_INTEGER_MAX <= number <= _INTEGER_MAX:
        return None
    split = _split(number)
    return int(split.plain()) if split.is_integer else None


def is_integer(number: Number) -> bool:
    """Return whether a number is an integer, of any size."""
    if isinstance(number, float):
        return number.is_integer()
    return isinstance(number, int) or not number or _split(number).is_integer


def as_float(number: Number) -> float | None:
    """Return the float that a number is, or whose shortest decimal it is; None if there is none."""
    if isinstance(number, float):
        return number
    decimal = Decimal(number)
    if len(_split(decimal).digits) > _FLOAT_DIGITS_MAX:
        return None
    double = float(decimal)
    return double if isfinite(double) and (exact(double) == decimal or Decimal(double) == decimal) else None


def number_text(number: Number) -> bytes:
    """Return the shortest JSON of a number; integers up to 2**64 as their digits.

    >>> number_text(1.0), number_text(-0.0), number_text(1e30), number_text(0.00001), number_text(1.5e-7)
    (b'1', b'0', b'1e30', b'0.00001', b'1.5e-7')
    >>> number_text(Decimal("123456789012345678901234567890.0")), number_text(Decimal("1e400"))
    (b'123456789012345678901234567890', b'1e400')
    """
    integer = as_integer(number)
    if integer is not None:
        return b"%d" % integer
    split = _split(exact(number))
    if split.is_integer:
        scientific = split.scientific()
        return (split.plain() if split.plain_size <= len(scientific) else scientific).encode()
    return (split.plain() if split.exponent >= -_PLACES_MAX else split.scientific()).encode()


def plain_decimal(number: Number) -> bytes | None:
    """Return a number without an exponent, None if it then takes more than 64 bytes."""
    integer = as_integer(number)
    if integer is not None:
        return b"%d" % integer
    split = _split(exact(number))
    return split.plain().encode() if split.plain_size <= NUMBER_BYTES_MAX else None


def plain_text(number: Number) -> bytes:
    """Return a number without an exponent if it then has up to 64 bytes, else as `number_text` does.

    >>> plain_text(1e30), plain_text(1.5e-7), plain_text(1e300)
    (b'1000000000000000000000000000000', b'0.00000015', b'1e300')
    """
    return plain_decimal(number) or number_text(number)


def padded_digits(number: Number, width: int) -> bytes | None:
    """Return the digits of an integer that is not negative with zeros in front, None if they are too many.

    Requires:
        The number is an integer from 0 up.
    """
    integer = as_integer(number)
    if integer is not None:
        digits = b"%0*d" % (width, integer)
        return digits if len(digits) == width else None
    split = _split(exact(number))
    return split.plain().zfill(width).encode() if split.plain_size <= width else None


def _split(number: Decimal) -> _Split:
    mantissa, _, exponent = f"{number:E}".partition("E")
    sign = "-" if mantissa[0] == "-" else ""
    digits = mantissa.lstrip("-").replace(".", "")
    # A decimal is never written with zeros before its first digit, but for zero itself.
    return _Split(sign, digits.rstrip("0") or "0", int(exponent))
