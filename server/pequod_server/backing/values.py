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
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

import orjson

from pequod.escapes import shown
from pequod_server.backing.errors import PackError
from pequod_server.backing.texts import (
    Element,
    array_text,
    composite_text,
    iso_moment,
    quoted_element,
    split_array,
    split_composite,
)

Simple = Literal["text", "number", "boolean", "json", "bytes", "moment"]


@dataclass(frozen=True, slots=True)
class Array:
    """The kind of an array of any dimensions."""

    element: Kind
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Composite:
    """The kind of a row type."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]


Kind: TypeAlias = Simple | Array | Composite
#: The form of a value: a column as it is (or none), columns as a JSON object, or a column of bytes.
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
        members = (f"{_name(name)}:{_fragment(cell)}" for name, cell in zip(names, cells, strict=True))
        return ("{" + ",".join(members) + "}").encode()
    if not cells or cells[0].text is None:
        return b""
    (cell,) = cells
    assert cell.text is not None
    if cell.kind == "bytes":
        return bytes_of(cell.text)
    if cell.kind == "moment":
        return iso_moment(cell.text).encode()
    if cell.kind == "boolean" or isinstance(cell.kind, Array | Composite):
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
        members = _read(text)
    except (ValueError, RecursionError) as error:
        raise PackError(place, f"it is not JSON: {error}") from error
    if not isinstance(members, dict) or sorted(members) != sorted(names):
        raise PackError(place, f"it must be a JSON object with exactly the members {', '.join(names)}")
    try:
        return [_plain(members[name]) for name in names]
    except (TypeError, UnicodeEncodeError) as error:
        raise PackError(place, "a member is nested too deep, or has half of a surrogate pair") from error


def cell_of(value: object) -> Cell:
    """Return the cell of a value that a library gave as one of Python's: SQLite's, or that of a lake."""
    match value:
        case None:
            return Cell(None, "text")
        case bool():
            return Cell("true" if value else "false", "boolean")
        case str():
            return Cell(value, "text")
        case int():
            return Cell(str(value), "number")
        case float():
            return Cell(repr(value), "number")
        case bytes():
            return Cell(text_of(value), "bytes")
        case _:
            raise AssertionError(f"no store has {type(value)}")


def text_of(data: bytes) -> str:
    r"""Return bytes as PostgreSQL writes them: hexadecimal digits after `\x`."""
    return "\\x" + data.hex()


def bytes_of(text: str) -> bytes:
    """Return the bytes that a text stands for; see `text_of`.

    Raises:
        ValueError: The text is not of this form.
    """
    return bytes.fromhex(text.removeprefix("\\x"))


def shown_as(kind: Kind) -> str:
    """Return what a JSON object shows for a kind, in words."""
    match kind:
        case Array(element):
            return f"an array, each element {shown_as(element)}"
        case Composite(names, kinds):
            members = (f"{name}: {shown_as(one)}" for name, one in zip(names, kinds, strict=True))
            return f"an object of {', '.join(members)}"
        case "number":
            return "a number with all its digits (text for NaN and infinities)"
        case "boolean":
            return "true or false"
        case "json":
            return "the JSON that it is"
        case "bytes":
            return r"text of hexadecimal digits after \x"
        case "moment":
            return "text in ISO 8601"
        case "text":
            return "text"
        case _:
            assert_never(kind)


def _fragment(cell: Cell) -> str:
    text, kind = cell
    if text is None:
        return "null"
    match kind:
        case "boolean":
            return "true" if text in _TRUE else "false"
        case "json":
            return text
        case "number" if _JSON_NUMBER(text):
            return text
        case "moment":
            return json.dumps(iso_moment(text))
        case Array(element, delimiter):
            return _array_fragment(split_array(text, delimiter), element)
        case Composite(names, kinds):
            fields = map(Cell, split_composite(text), kinds)
            members = (f"{_name(name)}:{_fragment(field)}" for name, field in zip(names, fields, strict=True))
            return "{" + ",".join(members) + "}"
        case _:
            return json.dumps(text, ensure_ascii=False)


def _array_fragment(elements: list[Element], kind: Kind) -> str:
    shown = (_array_fragment(one, kind) if isinstance(one, list) else _fragment(Cell(one, kind)) for one in elements)
    return "[" + ",".join(shown) + "]"


def _name(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def written_text(cell: Cell, kind: Kind) -> str | None:
    """Return the text that PostgreSQL takes for a member in a column of a kind; arrays and objects in its own form."""
    if cell.text is None or not isinstance(kind, Array | Composite):
        return cell.text
    if not cell.text.startswith(("[", "{")):
        return cell.text
    try:
        member = _read(cell.text)
    except ValueError:
        # It is in PostgreSQL's own form already.
        return cell.text
    return _literal(member, kind)


def _literal(member: object, kind: Kind) -> str | None:
    """Return the text of a member for a column; one that does not fit its kind is PostgreSQL's to refuse."""
    match member, kind:
        case list(), Array(element, delimiter):
            texts = (_literal(one, kind if isinstance(one, list) else element) for one in member)
            shown = [
                text if text is None or isinstance(one, list) else quoted_element(text)
                for one, text in zip(member, texts, strict=True)
            ]
            return array_text(shown, delimiter)
        case dict(), Composite(names, kinds):
            return composite_text([_literal(member.get(name), one) for name, one in zip(names, kinds, strict=True)])
        case _, "json":
            return None if member is None else _printed(member)
        case _:
            return _plain(member).text


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of JSON, as it is written."""

    text: str


def _read(text: str) -> object:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _printed(member: object) -> str:
    return orjson.dumps(member, default=_fragment_of, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


def _fragment_of(number: object) -> orjson.Fragment:
    assert isinstance(number, _Number), "JSON has nothing else"
    return orjson.Fragment(number.text)


def _plain(member: object) -> Cell:
    match member:
        case None:
            return Cell(None, "text")
        case str():
            # Half of a surrogate pair fails here.
            member.encode()
            return Cell(member, "text")
        case bool():
            return Cell("true" if member else "false", "boolean")
        case _Number(text):
            return Cell(text, "number")
        case _:
            return Cell(_printed(member), "json")
