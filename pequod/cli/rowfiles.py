r"""Rows in text files: CSV and JSON lines, read and written row by row.

CSV begins with a header; cells have the escapes of `pequod scan`, so that a row without quotes is one line:

    key,value
    p|bob|0000000100,caf\xc3\xa9 and \xff

JSON lines are those of `pequod scan --json`:

    {"key": "p|bob|0000000100", "value": {"base64": "/w=="}}

Keys that expire have their instant beside them, in milliseconds since 1970: a third column of CSV, which a file has if
one of its rows may have a deadline, and a third member of JSON:

    {"key": "session|17", "value": "ann", "expires_ms": 1767225600000}

A row that cannot be read is a `BadRow`, and reading may continue after it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple, TypeGuard

from pequod.cli.text import bytes_of_json, escaped, json_bytes, json_line, unescaped

_HEADER: Final = ["key", "value"]
#: The column, and the member, of deadlines.
EXPIRES: Final = "expires_ms"
#: No instant is above this one, which is in the year 6429.
INSTANT_MAX: Final = (1 << 47) - 1
#: An unclosed quote makes one cell of the rest of the file; this limit ends it. No server takes a larger value.
_CELL_CHARS_MAX: Final = 1 << 28


class Row(NamedTuple):
    """A row of a file."""

    #: The number of its line, or its number in a Parquet file, from 1.
    place: int
    key: bytes
    value: bytes
    #: When it expires, in milliseconds since 1970; 0: never.
    expires_ms: int = 0


#: A row to be written: key, value and `Row.expires_ms`.
TimedRow = tuple[bytes, bytes, int]


class BadRow(NamedTuple):
    """A row that cannot be read."""

    place: int
    reason: str


class FileError(Exception):
    """A file cannot be read; the text says why. With ``bad`` the error is about that row."""

    def __init__(self, reason: str, bad: BadRow | None = None) -> None:
        super().__init__(reason)
        self.bad = bad


def read_csv(file: BinaryIO) -> Iterator[Row | BadRow]:
    """Yield the rows of a CSV file.

    Raises:
        FileError: The header is missing.
    """
    csv.field_size_limit(_CELL_CHARS_MAX)
    lines = csv.reader((line.decode("utf-8", "surrogateescape") for line in file), strict=True)
    try:
        header = [cell.removeprefix("\ufeff") for cell in next(lines, [])]
    except csv.Error:
        header = []
    if header not in (_HEADER, [*_HEADER, EXPIRES]):
        raise FileError(f"the first line of a CSV file must be the header key,value or key,value,{EXPIRES}")
    while True:
        place = lines.line_num + 1
        try:
            cells = next(lines, None)
        except csv.Error as error:
            yield BadRow(place, f"it is no CSV: {error}")
            continue
        if cells is None:
            return
        if not cells:
            continue
        if len(cells) != len(header):
            needed = "two, key and value" if header == _HEADER else f"three, key, value and {EXPIRES}"
            yield BadRow(place, f"its cells are {len(cells)}; they must be {needed}")
            continue
        yield _row(place, unescaped, cells[0], cells[1], *(_digits(cell) for cell in cells[2:]))


def read_json_lines(file: Iterable[bytes]) -> Iterator[Row | BadRow]:
    """Yield the rows of a file with a JSON object on each line."""
    for place, line in enumerate(file, start=1):
        if line.isspace():
            continue
        try:
            found = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            yield BadRow(place, 'it is no UTF-8; show such bytes as {"base64": ...}')
        except (ValueError, RecursionError) as error:
            yield BadRow(place, f"it is no JSON: {error}")
        else:
            if isinstance(found, dict) and found.keys() - {EXPIRES} == {*_HEADER}:
                yield _row(place, bytes_of_json, found["key"], found["value"], found.get(EXPIRES, 0))
            else:
                yield BadRow(place, f'it must be {{"key": ..., "value": ...}}, with no other members than "{EXPIRES}"')


def _digits(cell: str) -> object:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 20 else cell or 0


def _row(place: int, read: Callable[[Any], bytes], key: object, value: object, expires: object = 0) -> Row | BadRow:
    if not is_instant(expires):
        return BadRow(place, f"the {EXPIRES}: it must be milliseconds since 1970")
    member = "key"
    try:
        key_bytes = read(key)
        member = "value"
        return Row(place, key_bytes, read(value), expires)
    except ValueError as error:
        return BadRow(place, f"the {member}: {error}")


def is_instant(value: object) -> TypeGuard[int]:
    """Return whether a value says when a row expires, or (0) that it does not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INSTANT_MAX


def write_csv(rows: Iterable[TimedRow], file: BinaryIO, *, may_expire: bool) -> None:
    """Write rows as CSV, with a column of deadlines if they may have some."""
    write = csv.writer(_Encoding(file), lineterminator="\n").writerow
    write([*_HEADER, EXPIRES] if may_expire else _HEADER)
    for key, value, expires_ms in rows:
        write((escaped(key), escaped(value), *((expires_ms or "",) if may_expire else ())))


def write_json_lines(rows: Iterable[TimedRow], file: BinaryIO, *, may_expire: bool) -> None:
    """Write rows as JSON, an object on each line, with their deadlines if they may have some."""
    for key, value, expires_ms in rows:
        deadline = {EXPIRES: expires_ms} if may_expire and expires_ms else {}
        file.write(json_line({"key": json_bytes(key), "value": json_bytes(value), **deadline}).encode() + b"\n")


class _Encoding:
    """A binary file with the method that csv writes to; a TextIOWrapper would close the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text.encode())
