"""Fields of records as bytes: the forms of values in slots, and the text of a field that is given by itself.

    slot        "bob"    7           1.5         true      null, an object, an array
    <x>         bob      7           1.5         true      -
    <x:4>       -        0007        -           true      -
    <x:i64>     -        80..07      -           -         -
    <x:f64>     -        c01c..      bff8..      -         -

What has no form is a `Misfit`, which says why.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Final

import orjson

from pequod.language.numbers import encode_f64, encode_i64
from pequod.language.spec import NumberForm, Path, Slot

#: A longer text cannot be part of a key.
TEXT_BYTES_MAX: Final = 4096
#: The longest text of a number without an exponent; longer ones keep it.
_NUMBER_BYTES_MAX: Final = 64
_INTEGER_MAX: Final = 1 << 64


class Misfit(StrEnum):
    """Why a value gives no row."""

    NO_OBJECT = "the value is no JSON object"
    MISSING = "a field is missing"
    NULL = "a field is null"
    OBJECT = "a field is an object"
    ARRAY = "a field is an array"
    NO_ARRAY = "a field is no array"
    OTHER_TYPE = "a field has another type than the literal"
    EMPTY = "a text is empty"
    DELIMITED = "a text has a |"
    TOO_LONG = "a text is too long"
    WIDTH = "a text is not as wide as its slot"
    TOO_WIDE = "a number is too wide for its slot"
    NEGATIVE = "a number is negative"
    FRACTION = "a number is no integer"
    NO_NUMBER = "a field is no number"
    INEXACT = "a number does not fit into 64 bits exactly"
    TOO_DEEP = "a field is nested too deep"
    #: A condition does not hold, or a slot has another value: the usual case, which is not counted.
    NOT_SELECTED = "not selected"


class _Absent:
    """The class of `ABSENT`."""


#: The result for a field that is missing.
ABSENT: Final = _Absent()

#: A value -> its form, or why it has none.
FormOf = Callable[[object], bytes | Misfit]


def getter(path: Path) -> Callable[[dict[str, object]], object]:
    """Return a function from a record to the value of a field, ABSENT if it is missing."""
    if len(path.names) == 1:
        (name,) = path.names
        return lambda record: record.get(name, ABSENT)
    if len(path.names) == 2:
        outer, inner = path.names

        def get_inner(record: dict[str, object]) -> object:
            found = record.get(outer)
            return found.get(inner, ABSENT) if isinstance(found, dict) else ABSENT

        return get_inner
    names = path.names

    def get(record: dict[str, object]) -> object:
        found: object = record
        for name in names:
            if not isinstance(found, dict):
                return ABSENT
            found = found.get(name, ABSENT)
        return found

    return get


def slot_form(slot: Slot) -> FormOf:
    """Return the function that writes values into a slot."""
    match slot.form:
        case NumberForm.I64:
            return _i64
        case NumberForm.F64:
            return _f64
        case None if slot.width is None:
            return delimited
        case _:
            assert slot.width is not None
            return _fixed(slot.width)


def delimited(value: object) -> bytes | Misfit:
    """Return the form of a value in a slot that ends at a delimiter."""
    if value.__class__ is str:
        # Characters are searched for in text three times as fast as in bytes (bench row: records, indexed).
        if "|" in value:
            return Misfit.DELIMITED
        text: bytes = value.encode()
        if 0 < len(text) <= TEXT_BYTES_MAX:
            return text
        return Misfit.TOO_LONG if text else Misfit.EMPTY
    if value.__class__ is int:
        return b"%d" % value
    if isinstance(value, float):
        return number_text(value)
    return b"true" if value is True else b"false" if value is False else _no_scalar(value)


def _fixed(width: int) -> FormOf:
    def form(value: object) -> bytes | Misfit:
        if isinstance(value, float):
            if not value.is_integer():
                return Misfit.FRACTION
            value = int(value)
        if value.__class__ is int:
            if value < 0:
                return Misfit.NEGATIVE
            digits = b"%0*d" % (width, value)
            return digits if len(digits) == width else Misfit.TOO_WIDE
        if isinstance(value, str):
            text = value.encode()
        elif isinstance(value, bool):
            text = b"true" if value else b"false"
        else:
            return _no_scalar(value)
        return text if len(text) == width else Misfit.WIDTH

    return form


def _i64(value: object) -> bytes | Misfit:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float):
        return Misfit.FRACTION
    if isinstance(value, bool) or not isinstance(value, int):
        return _no_number(value)
    try:
        return encode_i64(value).encode()
    except ValueError:
        return Misfit.INEXACT


def _f64(value: object) -> bytes | Misfit:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _no_number(value)
    try:
        return encode_f64(value).encode()
    except ValueError:
        return Misfit.INEXACT


def _no_number(value: object) -> Misfit:
    return Misfit.NO_NUMBER if isinstance(value, str | bool) else _no_scalar(value)


def _no_scalar(value: object) -> Misfit:
    if value is None:
        return Misfit.NULL
    if value is ABSENT:
        return Misfit.MISSING
    return Misfit.OBJECT if isinstance(value, dict) else Misfit.ARRAY


def number_text(number: float) -> bytes:
    """Return the shortest JSON of a number that the parser gave as a double; integers up to 2**64 as their digits.

    >>> number_text(1.0), number_text(0.1), number_text(1e30)
    (b'1', b'0.1', b'1e30')
    """
    if number.is_integer() and abs(number) <= _INTEGER_MAX:
        return b"%d" % int(number)
    return json_number(number).removesuffix(b".0")


def json_number(number: float) -> bytes:
    """Return a double as JSON has it; the printer writes the exponent's `+`, in some of its versions."""
    return (b"%b" % orjson.dumps(number)).replace(b"e+", b"e")


def field_text(value: object) -> bytes | Misfit:
    """Return a field as a value by itself: text without quotes, all else as JSON, numbers without an exponent."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        text = json_number(value)
        if b"e" in text:
            plain = f"{Decimal(text.decode()):f}".encode()
            return plain if len(plain) <= _NUMBER_BYTES_MAX else text
        return text
    if value is None:
        return Misfit.NULL
    if value is ABSENT:
        return Misfit.MISSING
    return json_text(value)


def json_text(value: object) -> bytes | Misfit:
    """Return a value as compact JSON.

    It is a copy: what the printer returns has all the memory in which it was printed, 4 KB for the shortest text.
    """
    try:
        return b"%b" % orjson.dumps(value)
    except TypeError:
        # The parser takes deeper values than the printer.
        return Misfit.TOO_DEEP
