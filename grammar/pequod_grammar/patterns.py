"""Patterns: from one word of the language to literals and slots."""

from __future__ import annotations

import re
from typing import NoReturn

from pequod.language.errors import JoinError, Span
from pequod.language.rules import WIDTH_MAX
from pequod.language.spec import FORM_WIDTH, NumberForm, Pattern, Slot

_PIECES = re.compile(r"<[^<>]*>|[^<>]+|[<>]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_WIDTH = re.compile(r"[0-9]{1,6}").fullmatch


def parse_pattern(word: str, span: Span) -> Pattern:
    """Return the pattern of ``word``; ``span`` is its place in the text.

    Raises:
        JoinError: A slot is not closed, or has no proper name or width; or a character cannot be part of a key.
    """
    parts: list[bytes | Slot] = []
    for match in _PIECES.finditer(word):
        piece = match.group()
        place = Span(span.start + match.start(), span.start + match.end(), span.line, span.column + match.start())
        if piece == "<":
            _refuse("the slot is not closed", "end it with `>`: <name> or <name:width>, without white space", place)
        elif piece == ">":
            _refuse("there is no slot to close", "a slot starts with `<`: <name> or <name:width>", place)
        elif piece.startswith("<"):
            parts.append(parse_slot(piece[1:-1], place))
        else:
            parts.append(_parse_literal(piece, place))
    return Pattern(tuple(parts), span)


def parse_slot(inside: str, place: Span) -> Slot:
    """Return the slot of the text between `<` and `>`.

    Raises:
        JoinError: It has no proper name or width.
    """
    name, colon, width = inside.partition(":")
    if not name:
        _refuse("the slot has no name", "name it: <poster> or <time:10>", place)
    if not _NAME(name):
        _refuse(f"{name!r} is no name for a slot", "use letters, digits and `_`, and no digit in front", place)
    if not colon:
        return Slot(name)
    if width in list(NumberForm):
        return Slot(name, FORM_WIDTH, NumberForm(width))
    if width.lower() in ("i32", "i64", "int", "integer", "u64", "f32", "f64", "float", "double", "number"):
        _refuse(
            f"{width!r} is no form of numbers for the slot <{name}>",
            f"write <{name}:i64> for integers, <{name}:f64> for numbers, or a width in bytes",
            place,
        )
    if not _WIDTH(width) or not 1 <= int(width) <= WIDTH_MAX:
        _refuse(
            f"{width!r} is no width for the slot <{name}>",
            f"a width is a whole number of bytes, 1 to {WIDTH_MAX}",
            place,
        )
    return Slot(name, int(width))


def _parse_literal(piece: str, place: Span) -> bytes:
    for at, character in enumerate(piece):
        if not character.isprintable():
            here = Span(place.start + at, place.start + at + 1, place.line, place.column + at)
            _refuse(f"the character {character!r} cannot stand in a pattern", "use visible characters", here)
    return piece.encode()


def _refuse(reason: str, hint: str, span: Span) -> NoReturn:
    raise JoinError(reason, hint=hint, span=span)
