"""The types of columns: how the bytes of a slot, or a member of a JSON object, become a cell.

>>> KINDS["integer"].of_bytes(b"0000000100")
100
>>> KINDS["timestamp_s"].of_bytes(b"1700000000").isoformat()
'2023-11-14T22:13:20+00:00'
>>> KINDS["integer"].of_bytes(b"many")
Traceback (most recent call last):
    ...
pequod_views.errors.UnfitError: b'many' is no integer of 64 bits
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn, TypeAlias
from uuid import UUID

from pequod_views.errors import UnfitError

#: What a column holds in one row; None is NULL.
Cell: TypeAlias = bytes | str | int | float | bool | Decimal | datetime | UUID | None

_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,40}").fullmatch
_NUMBER: Final = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)").fullmatch
_BIGINT_END: Final = 1 << 63
#: Those of an integer of 64 bits, with a sign.
_BIGINT_CHARACTERS_MAX: Final = 20
#: A number that is printed as a text.
_MARK: Final = re.compile(r'"\\u0000([0-9.eE+-]+)"')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Longer numbers fit into no column of PostgreSQL.
_DIGITS_MAX: Final = 1000
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class CellKind:
    """The type of a column."""

    name: str
    postgres: str
    #: SQLite keeps numbers that are not 64 bits long, moments and UUIDs as text, so that nothing is rounded.
    sqlite: str
    #: So does MariaDB with numbers that are not 64 bits long, and with JSON, which it keeps as text anyway.
    mariadb: str
    of_bytes: Callable[[bytes], Cell]
    #: Takes what `parse_json` returns for a member; never None, which is NULL.
    of_json: Callable[[object], Cell]


def parse_json(data: bytes) -> object:
    """Return the value of a JSON text; numbers with a point, an exponent or more than 64 bits are decimals.

    Raises:
        UnfitError: It is no JSON.
    """
    try:
        return json.loads(
            data.decode(), parse_int=_read_integer, parse_float=_read_decimal, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"{_short(data)} is no JSON: {error}") from error


def _read_integer(text: str) -> int | Decimal:
    number = int(text) if len(text) <= _BIGINT_CHARACTERS_MAX else None
    return number if number is not None and -_BIGINT_END <= number < _BIGINT_END else _read_decimal(text)


def _read_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has an exponent beyond all bounds") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _no(value: object, what: str) -> UnfitError:
    return UnfitError(f"{_short(value)} is no {what}")


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _no(data, "text in UTF-8") from error
    return _whole_text(text)


def _whole_text(text: object) -> str:
    if not isinstance(text, str):
        raise _no(text, "text")
    if "\0" in text:
        raise UnfitError(f"{_short(text)} contains a NUL character, which databases refuse in texts")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _no(text, "text: it has half of a surrogate pair") from error
    return text


def _integer(data: bytes) -> int:
    if not _INTEGER(data):
        raise _no(data, "integer of 64 bits")
    return _bigint(int(data))


def _bigint(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not -_BIGINT_END <= number < _BIGINT_END:
        raise _no(number, "integer of 64 bits")
    return number


def _decimal(data: bytes) -> Decimal:
    if not _NUMBER(data) or len(data) > _DIGITS_MAX:
        raise _no(data, f"decimal number of up to {_DIGITS_MAX} digits")
    return Decimal(data.decode())


def _decimal_of_json(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _no(value, "number")
    number = Decimal(value)
    # The exponent may be of any size in a JSON text of a few characters.
    if abs(number.adjusted()) > _DIGITS_MAX or len(number.as_tuple().digits) > _DIGITS_MAX:
        raise _no(value, f"decimal number of up to {_DIGITS_MAX} digits")
    return number


def _float(data: bytes) -> float:
    return _finite(float(_decimal(data)))


def _finite(number: float) -> float:
    if number - number != 0:
        raise _no(number, "number that a column of 8 bytes holds")
    return number


def _boolean(data: bytes) -> bool:
    words = {b"true": True, b"1": True, b"false": False, b"0": False}
    if data not in words:
        raise _no(data, "boolean: true, false, 1 or 0")
    return words[data]


def _boolean_of_json(value: object) -> bool:
    if not isinstance(value, bool):
        raise _no(value, "boolean")
    return value


def _json(data: bytes) -> str:
    parsed = parse_json(data)
    _json_of_json(parsed)
    return data.decode()


def _json_of_json(value: object) -> str:
    marked: list[str] = []

    def mark(number: object) -> str:
        # The printer has no decimals. NUL stands in no other text that is taken.
        marked.append(_digits_of(number))
        return f"\0{marked[-1]}"

    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=mark)
    except (ValueError, RecursionError) as error:
        raise _no(value, f"JSON that databases take: {error}") from error
    text, count = _MARK.subn(r"\1", text)
    if count != len(marked) or "\\u0000" in text:
        raise UnfitError(f"{_short(value)} contains a NUL character, which databases refuse in JSON")
    return _whole_text(text)


def _digits_of(value: object) -> str:
    """Return the digits of a decimal, as those of a float where a float stands for it."""
    assert isinstance(value, Decimal), "JSON texts hold nothing else"
    number = _decimal_of_json(value)
    text = repr(float(number))
    return text if "n" not in text and Decimal(text) == number else str(number)


def _moment(step_us: int) -> Callable[[int], datetime]:
    def moment(steps: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=steps * step_us)
        except OverflowError as error:
            raise _no(steps, "moment of the years 1 to 9999") from error

    return moment


def _uuid(data: bytes) -> UUID:
    try:
        return UUID(data.decode())
    except ValueError as error:
        raise _no(data, "UUID") from error


def _moments(name: str, step_us: int) -> CellKind:
    moment = _moment(step_us)
    return CellKind(
        name,
        "timestamptz",
        "TEXT",
        "datetime(6)",
        lambda data: moment(_integer(data)),
        lambda value: moment(_bigint(value)),
    )


KINDS: Final = {
    kind.name: kind
    for kind in (
        CellKind("text", "text", "TEXT", "longtext", _text, _whole_text),
        CellKind("bytes", "bytea", "BLOB", "longblob", lambda data: data, lambda value: _whole_text(value).encode()),
        CellKind("integer", "bigint", "INTEGER", "bigint", _integer, _bigint),
        CellKind("numeric", "numeric", "TEXT", "longtext", _decimal, _decimal_of_json),
        CellKind(
            "float", "double precision", "REAL", "double", _float, lambda value: _finite(float(_decimal_of_json(value)))
        ),
        CellKind("boolean", "boolean", "INTEGER", "tinyint(1)", _boolean, _boolean_of_json),
        CellKind("json", "jsonb", "TEXT", "longtext", _json, _json_of_json),
        _moments("timestamp_s", 1_000_000),
        _moments("timestamp_us", 1),
        CellKind("uuid", "uuid", "TEXT", "char(36)", _uuid, lambda value: _uuid(_whole_text(value).encode())),
    )
}
