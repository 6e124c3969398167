"""Fields of records: from the tokens after `with` and `as` to conditions and to what a source gives."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NoReturn, cast

import orjson
from lark import Token, Tree

from pequod.language.errors import JoinError, Span
from pequod.language.numerals import number_text
from pequod.language.record_rules import NoLiteral, read_literal
from pequod.language.spec import (
    WHOLE,
    Bind,
    Comparator,
    Compare,
    CompareSlot,
    Condition,
    Exists,
    Given,
    OneField,
    Path,
    SomeFields,
    print_name,
)
from pequod_grammar.diagnosis import span_of
from pequod_grammar.patterns import parse_slot

_NAME = r'"(?:[^"\\\n]|\\[^\n])*"|[^".\[\]]+'
_NAMES = re.compile(_NAME).findall
_PATH = re.compile(rf"(?P<names>(?:{_NAME})(?:\.(?:{_NAME}))*)(?P<each>\[\])?").fullmatch
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_ESCAPES = 'escapes are those of JSON, such as \\n, \\" and \\u00e9'
_LITERALS = "a literal is a number, a text in double quotes, true, false or null"


def parse_conditions(tree: Tree[Token] | None) -> tuple[Condition, ...]:
    """Return the conditions after `with`.

    Raises:
        JoinError: A path, a slot or a literal is malformed.
    """
    if tree is None:
        return ()
    _, *conditions = tree.children
    return tuple(_condition(cast("Tree[Token]", condition)) for condition in conditions)


def parse_given(tree: Tree[Token] | None) -> Given | None:
    """Return what a source gives by its `as`.

    Raises:
        JoinError: A path is malformed.
    """
    if tree is None:
        return None
    _, first, *rest = tree.children
    span = _span(tree)
    if isinstance(first, Token):
        return OneField(_plain_path(first), span)
    return SomeFields(tuple(_item(cast("Tree[Token]", item)) for item in (first, *rest)), span)


def _item(tree: Tree[Token]) -> tuple[str, Path]:
    first, second = cast("tuple[Token, Token | None]", tree.children)
    path = _plain_path(first)
    if second is None:
        if not path.names:
            _refuse("`.` has no name of its own in an object", "write one: `as {value: .}`", span_of(first))
        return path.names[-1], path
    if len(path.names) != 1:
        _refuse(
            f"'{first}' is {'the name of one' if path.names else 'no name of a'} field",
            "write `name: path`, such as `votes: stats.votes`",
            span_of(first),
        )
    return path.names[0], _plain_path(second)


def _condition(tree: Tree[Token]) -> Condition:
    left, comparator, *rest = cast("list[Token]", tree.children)
    span = _span(tree)
    if not rest:
        return Exists(_plain_path(left), span)
    (operand,) = rest
    if left.type == "SLOT":
        return _slot_comparison(left, comparator, operand, span)
    if operand.startswith("<"):
        if comparator != "=":
            _refuse(
                f"a field cannot be compared with the slot {operand} by `{comparator}`",
                f"`=` gives the slot the field's value; to select, compare with a literal: `{left} {comparator} 10`",
                span,
            )
        path, is_each = _path(left)
        return Bind(path, parse_slot(operand[1:-1], span_of(operand)), is_each, span)
    path, is_each = _path(left)
    if is_each:
        _refuse(
            f"the elements of '{left[:-2]}' are not compared",
            f"give them to a slot, `{left} = <element>`, which the reader or another source then fixes",
            span,
        )
    return Compare(path, _comparator(comparator), _literal(operand), span)


def _slot_comparison(left: Token, comparator: Token, operand: Token, span: Span) -> CompareSlot:
    slot = parse_slot(left[1:-1], span_of(left))
    if operand.startswith("<"):
        _refuse(
            f"two slots are not compared: {left} {comparator} {operand}",
            "write the same name in both places for slots that are to be equal",
            span,
        )
    literal = _literal(operand)
    if not literal.startswith('"'):
        _refuse(
            f"the slot <{slot.name}> is compared with a number or a word",
            f'slots are text: write `{left} {comparator} "{operand}"`',
            span_of(operand),
        )
    return CompareSlot(slot.name, _comparator(comparator), literal, span)


def _comparator(token: Token) -> Comparator:
    if token not in list(Comparator):
        right = {"==": "=", "<>": "!="}[str(token)]
        _refuse(f"'{token}' is no comparison", f"write `{right}`", span_of(token))
    return Comparator(str(token))


def _literal(token: Token) -> str:
    """Return the JSON of a literal, the same for equal ones."""
    text, place = str(token), span_of(token)
    if text in ("True", "False", "None", "TRUE", "FALSE", "NULL"):
        right = {"none": "null"}.get(text.lower(), text.lower())
        _refuse(f"'{text}' is no literal", f"write `{right}`", place)
    value = read_literal(text)
    if isinstance(value, NoLiteral):
        if text.startswith('"'):
            _refuse(f"{text} is no text", 'escapes are those of JSON, such as \\n, \\" and \\u00e9', place)
        hint = f'{_LITERALS}; write "{text}"' if re.fullmatch(r"[\w .-]+", text) else _LITERALS
        _refuse(f"'{text}' is no literal", hint, place)
    if isinstance(value, list | dict):
        _refuse(f"a field is not compared with '{text}'", _LITERALS, place)
    literal = number_text(value) if isinstance(value, float | Decimal) else orjson.dumps(value)
    return literal.decode()


def _plain_path(token: Token) -> Path:
    path, is_each = _path(token)
    if is_each:
        _refuse(
            f"'{token}' goes into an array, which only `{token} = <slot>` can",
            f"leave out the `[]`: `{token[:-2]}` is the whole array",
            span_of(token),
        )
    return path


def _path(token: Token) -> tuple[Path, bool]:
    """Return the path of a word, and whether `[]` ends it."""
    text, place = str(token), span_of(token)
    if text == ".":
        return WHOLE, False
    match = _PATH(text)
    if match is None:
        bare = _QUOTED.sub("", text)
        if "[]" in bare[:-2]:
            _refuse(f"'{text}' goes on after `[]`", "`[]` ends a path: `tags[] = <tag>`", place)
        if "[" in bare or "]" in bare:
            _refuse(f"'{text}' is no path to a field", "`[]` at the end goes through the elements of an array", place)
        hint = "the names of fields stand between single dots: `stats.votes`"
        _refuse(f"'{text}' is no path to a field", hint, place)
    names = tuple(_name(name, place) for name in _NAMES(match["names"]))
    return Path(names), match["each"] is not None


def _name(text: str, place: Span) -> str:
    if text.startswith('"'):
        try:
            return cast("str", orjson.loads(text))
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            _refuse(f"{text} is no text", _ESCAPES, place)
    if print_name(text) != text:
        _refuse(
            f"{text!r} is no name of a field",
            f"put a name in double quotes unless it is letters, digits, `_` and `-`: {print_name(text)}",
            place,
        )
    return text


def _span(tree: Tree[Token]) -> Span:
    meta = tree.meta
    return Span(meta.start_pos, meta.end_pos, meta.line, meta.column)


def _refuse(reason: str, hint: str, span: Span) -> NoReturn:
    raise JoinError(reason, hint=hint, span=span)
