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
from pequod.language.numerals import (
    Number,
    Vast,
    as_float,
    as_integer,
    is_integer,
    number_text,
    padded_digits,
    plain_decimal,
    plain_text,
)
from pequod.language.spec import NumberForm, Path, Slot

#: A longer text cannot be part of a key.
TEXT_BYTES_MAX: Final = 4096
#: A value that is nested deeper is not given by itself: its printer ends there.
_DEPTH_MAX: Final = 250
#: What the printer writes as it should; it writes 1.0 and 1 for one number.
_PRINTED: Final = frozenset({str, int, bool, type(None)})


class Misfit(StrEnum):
    """Why a value gives no row."""

    NO_OBJECT = "the value is no JSON object"
    NO_SCALAR = "the value is no JSON number, string, true or false"
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
    VAST = "a number has an exponent of more than 9 digits"
    LONG_NUMBER = "a number takes more than 64 bytes without an exponent"
    SURROGATE = "a text has half of a surrogate pair, which UTF-8 has not"
    #: A condition does not hold, or a slot has another value: the usual case, which is not counted.
    NOT_SELECTED = "not selected"


class _Absent:
    """The class of `ABSENT`."""


#: The result for a field that is missing.
ABSENT: Final = _Absent()

#: The name of the one field in the record of a value itself, which `.` finds; see `Lens`.
OWN_FIELD: Final = "."

#: A value -> its form, or why it has none.
FormOf = Callable[[object], bytes | Misfit]


def outer_name(path: Path) -> str | None:
    """Return the name of an outer field; None if the path goes deeper."""
    return None if len(path.names) > 1 else path.names[0] if path.names else OWN_FIELD


def getter(path: Path) -> Callable[[dict[str, object]], object]:
    """Return a function from a record to the value of a field, ABSENT if it is missing."""
    name = outer_name(path)
    if name is not None:
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
        try:
            text: bytes = value.encode()
        except UnicodeEncodeError:
            return Misfit.SURROGATE
        if 0 < len(text) <= TEXT_BYTES_MAX:
            return text
        return Misfit.TOO_LONG if text else Misfit.EMPTY
    if value.__class__ is int:
        return b"%d" % value
    if isinstance(value, float | Decimal):
        text = number_text(value)
        return text if len(text) <= TEXT_BYTES_MAX else Misfit.TOO_LONG
    return b"true" if value is True else b"false" if value is False else _no_scalar(value)


def _fixed(width: int) -> FormOf:
    def form(value: object) -> bytes | Misfit:
        if isinstance(value, str):
            try:
                text = value.encode()
            except UnicodeEncodeError:
                return Misfit.SURROGATE
        elif isinstance(value, bool):
            text = b"true" if value else b"false"
        elif isinstance(value, int | float | Decimal):
            return _digits(value, width)
        else:
            return _no_scalar(value)
        return text if len(text) == width else Misfit.WIDTH

    return form


def _digits(number: Number, width: int) -> bytes | Misfit:
    if not is_integer(number):
        return Misfit.FRACTION
    return Misfit.NEGATIVE if number < 0 else padded_digits(number, width) or Misfit.TOO_WIDE


def _i64(value: object) -> bytes | Misfit:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return _no_number(value)
    integer = as_integer(value)
    if integer is None:
        return Misfit.INEXACT if is_integer(value) else Misfit.FRACTION
    try:
        return encode_i64(integer).encode()
    except ValueError:
        return Misfit.INEXACT


def _f64(value: object) -> bytes | Misfit:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return _no_number(value)
    double = as_float(value)
    return Misfit.INEXACT if double is None else encode_f64(double).encode()


def _no_number(value: object) -> Misfit:
    return Misfit.NO_NUMBER if isinstance(value, str | bool) else _no_scalar(value)


def _no_scalar(value: object) -> Misfit:
    if value is None:
        return Misfit.NULL
    if value is ABSENT:
        return Misfit.MISSING
    if isinstance(value, Vast):
        return Misfit.VAST
    return Misfit.OBJECT if isinstance(value, dict) else Misfit.ARRAY


def field_text(value: object) -> bytes | Misfit:
    """Return a field as a value by itself: text without quotes, all else as JSON, numbers as `plain_text` has them."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return Misfit.SURROGATE
    if isinstance(value, float | Decimal):
        return plain_text(value)
    if value is None:
        return Misfit.NULL
    if value is ABSENT:
        return Misfit.MISSING
    return Misfit.VAST if isinstance(value, Vast) else json_text(value)


def plain_field_text(value: object) -> bytes | Misfit:
    """Return the same for what adds or compares numbers, which have no exponent there: as text they would be wrong."""
    if isinstance(value, float | Decimal):
        return plain_decimal(value) or Misfit.LONG_NUMBER
    return field_text(value)


def json_text(value: object) -> bytes | Misfit:
    """Return a value as compact JSON, its numbers as `number_text` has them.

    It is a copy: what the printer returns has all the memory in which it was printed, 4 KB for the shortest text.
    """
    try:
        if value.__class__ is dict and _PRINTED.issuperset(map(type, value.values())):
            # The most frequent case, without a call of its own (bench row: put, join over fields of records).
            return b"%b" % orjson.dumps(value)
        return b"%b" % orjson.dumps(value if value.__class__ in _PRINTED else _printable(value, _DEPTH_MAX))
    except TypeError:
        return Misfit.SURROGATE
    except _TooDeepError:
        return Misfit.TOO_DEEP


class _TooDeepError(Exception):
    """A value is nested too deep."""


def _printable(value: object, depth: int) -> object:
    """Return a value with the texts of its numbers in the place of those that the printer writes in other ways."""
    if depth < 0:
        raise _TooDeepError
    if isinstance(value, dict):
        if _PRINTED.issuperset(map(type, value.values())):
            return value
        return {
            name: member if member.__class__ in _PRINTED else _printable(member, depth - 1)
            for name, member in value.items()
        }
    if isinstance(value, list):
        if _PRINTED.issuperset(map(type, value)):
            return value
        return [member if member.__class__ in _PRINTED else _printable(member, depth - 1) for member in value]
    if isinstance(value, float | Decimal):
        return orjson.Fragment(number_text(value))
    return orjson.Fragment(value.text) if isinstance(value, Vast) else value
