"""The value of a row: one column as it is, or several as a JSON object in the order of the mapping.

Cells come as the text that the database writes for them, with the kind that says how JSON shows it.

>>> compose(("body", "stars"), "object", [Cell("hi", "text"), Cell("3", "number")])
b'{"body":"hi","stars":3}'
>>> compose(("body",), "column", [Cell("hi", "text")])
b'hi'
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from pequod.escapes import shown
from pequod_server.backing.errors import PackError

Kind = Literal["text", "number", "boolean", "json", "bytes"]
#: What a value is made of: a column as it is (or none), columns as a JSON object, or a column of bytes.
Form = Literal["column", "object", "bytes"]
_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?").fullmatch
_TRUE: Final = frozenset({"t", "true", "1"})


class Cell(NamedTuple):
    r"""One column of a row; bytes are hexadecimal digits after `\x`, as PostgreSQL writes them."""

    #: None is NULL.
    text: str | None
    kind: Kind


def compose(names: Sequence[str], form: Form, cells: Sequence[Cell]) -> bytes:
    """Return the value of the cells; a single NULL, and no cells at all, give an empty value."""
    if form == "object":
        members = (f"{json.dumps(name)}:{_fragment(cell)}" for name, cell in zip(names, cells, strict=True))
        return ("{" + ",".join(members) + "}").encode()
    if not cells or cells[0].text is None:
        return b""
    (cell,) = cells
    assert cell.text is not None
    if cell.kind == "bytes":
        return bytes_of(cell.text)
    if cell.kind == "boolean":
        return _fragment(cell).encode()
    return cell.text.encode("utf-8", "surrogateescape")


def decompose(key: bytes, value: bytes, names: Sequence[str], form: Form) -> list[Cell]:
    """Return the columns for ``value``, for a write.

    Raises:
        PackError: The value does not have the form of the mapping.
    """
    if form == "bytes":
        return [Cell(text_of(value), "bytes")]
    place = f"the value of key {shown(key)}"
    if form == "column" and not names:
        if value:
            raise PackError(place, "the mapping has no column for a value; put an empty one")
        return []
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise PackError(place, "it is not UTF-8 text") from error
    if form == "column":
        return [Cell(text, "text")]
    try:
        members = json.loads(text)
    except ValueError as error:
        raise PackError(place, f"it is not JSON: {error}") from error
    if not isinstance(members, dict) or sorted(members) != sorted(names):
        raise PackError(place, f"it must be a JSON object with exactly the members {', '.join(names)}")
    return [_plain(members[name]) for name in names]


def text_of(data: bytes) -> str:
    r"""Return bytes as PostgreSQL writes them: hexadecimal digits after `\x`."""
    return "\\x" + data.hex()


def bytes_of(text: str) -> bytes:
    """Return the bytes that a text stands for; see `text_of`.

    Raises:
        ValueError: The text is not of this form.
    """
    return bytes.fromhex(text.removeprefix("\\x"))


def _fragment(cell: Cell) -> str:
    text = cell.text
    if text is None:
        return "null"
    match cell.kind:
        case "boolean":
            return "true" if text in _TRUE else "false"
        case "json":
            return text
        case "number" if _JSON_NUMBER(text):
            return text
        case _:
            return json.dumps(text, ensure_ascii=False)


def _plain(member: object) -> Cell:
    match member:
        case None:
            return Cell(None, "text")
        case str():
            return Cell(member, "text")
        case bool():
            return Cell("true" if member else "false", "boolean")
        case int() | float():
            return Cell(json.dumps(member), "number")
        case _:
            return Cell(json.dumps(member, ensure_ascii=False), "json")
