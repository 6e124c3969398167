r"""Rows in text files: CSV and JSON lines, read and written row by row.

CSV begins with a header; cells have the escapes of `pequod scan`, so that a row without quotes is one line:

    key,value
    p|bob|0000000100,caf\xc3\xa9 and \xff

JSON lines are those of `pequod scan --json`:

    {"key": "p|bob|0000000100", "value": {"base64": "/w=="}}

A row that cannot be read is a `BadRow`, and reading may continue after it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from pequod.cli.text import bytes_of_json, escaped, json_bytes, json_line, unescaped

_HEADER: Final = ["key", "value"]
#: An unclosed quote makes one cell of the rest of the file; this limit ends it. No server takes a larger value.
_CELL_CHARS_MAX: Final = 1 << 28


class Row(NamedTuple):
    """A row of a file."""

    #: The number of its line, or its number in a Parquet file, from 1.
    place: int
    key: bytes
    value: bytes


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
    if header != _HEADER:
        raise FileError("the first line of a CSV file must be the header key,value")
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
        if len(cells) != 2:
            yield BadRow(place, f"its cells are {len(cells)}; they must be two, key and value")
            continue
        yield _row(place, unescaped, cells[0], cells[1])


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
            if isinstance(found, dict) and sorted(found) == _HEADER:
                yield _row(place, bytes_of_json, found["key"], found["value"])
            else:
                yield BadRow(place, 'it must be {"key": ..., "value": ...}, with no other members')


def _row(place: int, read: Callable[[Any], bytes], key: object, value: object) -> Row | BadRow:
    member = "key"
    try:
        key_bytes = read(key)
        member = "value"
        return Row(place, key_bytes, read(value))
    except ValueError as error:
        return BadRow(place, f"the {member}: {error}")


def write_csv(rows: Iterable[tuple[bytes, bytes]], file: BinaryIO) -> None:
    """Write rows as CSV."""
    write = csv.writer(_Encoding(file), lineterminator="\n").writerow
    write(_HEADER)
    for key, value in rows:
        write((escaped(key), escaped(value)))


def write_json_lines(rows: Iterable[tuple[bytes, bytes]], file: BinaryIO) -> None:
    """Write rows as JSON, an object on each line."""
    file.writelines(
        json_line({"key": json_bytes(key), "value": json_bytes(value)}).encode() + b"\n" for key, value in rows
    )


class _Encoding:
    """A binary file with the method that csv writes to; a TextIOWrapper would close the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        self._file.write(text.encode())
