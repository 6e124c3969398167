"""From text to `JoinSpec`."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken

from pequod.language.errors import JoinError, Span
from pequod.language.rules import KEEP_MAX, check_spec, two_widths
from pequod.language.spec import (
    Bind,
    Condition,
    JoinSpec,
    Keep,
    Maintenance,
    Operator,
    Pattern,
    Pull,
    Push,
    Slot,
    Snapshot,
    Source,
)
from pequod_grammar.diagnosis import diagnose, span_of
from pequod_grammar.patterns import parse_pattern, parse_slot
from pequod_grammar.records import parse_conditions, parse_given

_COUNT = re.compile(r"[0-9]{1,9}").fullmatch
#: The numbers that `Decimal` reads, without underscores and foreign digits; `str` may print an exponent.
_SECONDS = re.compile(r"[0-9.]+([eE][+-]?[0-9]+)?").fullmatch


def parse(text: str) -> list[JoinSpec]:
    """Return the joins that ``text`` declares, in order; none for a text of comments and white space.

    Raises:
        JoinError: With the place of the first mistake, the reason, and a way to correct it.
    """
    try:
        tree = _parser().parse(text)
        return [_declaration(cast("Tree[Token]", child)) for child in tree.children]
    except UnexpectedToken as error:
        raise diagnose(error, text) from None
    except JoinError as error:
        raise error.with_text(text) from None


def parse_some(text: str) -> list[JoinSpec]:
    """Return the joins of a text that has to declare at least one, as `parse` does.

    Raises:
        JoinError: It declares none, or one of them is wrong.
    """
    if joins := parse(text):
        return joins
    raise JoinError("the text declares no join", hint="write one as OUTPUT = SOURCES;", text=text)


def parse_one(text: str) -> JoinSpec:
    """Return the join of a text that has to declare just one, as `parse` does.

    Raises:
        JoinError: It declares none or several, or the one is wrong.
    """
    first, *others = parse_some(text)
    if others:
        raise JoinError("the text declares several joins", hint="give one join", span=others[0].output.span, text=text)
    return first


@cache
def _parser() -> Lark:
    return Lark.open_from_package(
        __name__, "cachejoin.lark", parser="lalr", propagate_positions=True, maybe_placeholders=True
    )


def _declaration(tree: Tree[Token]) -> JoinSpec:
    output, maintenance, *sources, keep = cast("list[Tree[Token]]", tree.children)
    spec = JoinSpec(
        _pattern(output),
        tuple(map(_source, sources)),
        Push() if maintenance is None else _maintenance(maintenance),
        _span(tree),
        None if keep is None else _keep(keep),
    )
    spec = _with_widths(spec)
    check_spec(spec)
    return spec


def _source(tree: Tree[Token]) -> Source:
    operator, pattern, conditions, given = tree.children
    assert isinstance(operator, Token)
    parsed = _pattern(cast("Tree[Token]", pattern))
    assert parsed.span is not None
    start, end = span_of(operator), parsed.span.end
    for part in (conditions, given):
        if part is not None:
            end = _span(cast("Tree[Token]", part)).end
    return Source(
        Operator(str(operator)),
        parsed,
        Span(start.start, end, start.line, start.column),
        parse_conditions(cast("Tree[Token] | None", conditions)),
        parse_given(cast("Tree[Token] | None", given)),
    )


def _pattern(tree: Tree[Token]) -> Pattern:
    (word,) = tree.children
    assert isinstance(word, Token)
    return parse_pattern(str(word), span_of(word))


def _maintenance(tree: Tree[Token]) -> Maintenance:
    keyword, *rest = cast("list[Token]", tree.children)
    match keyword.type:
        case "PUSH":
            return Push()
        case "PULL":
            return Pull()
        case _:
            return Snapshot(_seconds(rest[0]))


def _keep(tree: Tree[Token]) -> Keep:
    _, end, count, of = tree.children
    assert isinstance(end, Token)
    assert isinstance(count, Token)
    if not _COUNT(str(count)):
        raise JoinError(
            f"{str(count)!r} is no number of keys",
            hint=f"write a whole number from 1 to {KEEP_MAX:,}: `keep last 400`",
            span=span_of(count),
        )
    slots = [] if of is None else cast("list[Token]", cast("Tree[Token]", of).children[1:])
    return Keep(int(count), str(end) == "last", tuple(map(_name_of, slots)), _span(tree))


def _name_of(word: Token) -> str:
    slot = parse_slot(str(word)[1:-1], span_of(word))
    if slot.width is not None:
        raise JoinError(
            f"{str(word)!r} has a width", hint=f"write <{slot.name}>: its width is the output's", span=span_of(word)
        )
    return slot.name


def _seconds(word: Token) -> Decimal:
    try:
        age_s = Decimal(str(word) if _SECONDS(str(word)) else "NaN")
    except InvalidOperation:
        age_s = Decimal("NaN")
    if not age_s.is_finite() or age_s <= 0:
        raise JoinError(
            f"{str(word)!r} is no age for a snapshot", hint="write positive seconds: `snapshot 2.5`", span=span_of(word)
        )
    return age_s


def _span(tree: Tree[Token]) -> Span:
    meta = tree.meta
    return Span(meta.start_pos, meta.end_pos, meta.line, meta.column)


def _with_widths(spec: JoinSpec) -> JoinSpec:
    """Give each slot the width or the form that one of its occurrences names."""
    named: dict[str, Slot] = {}
    for role in spec.roles:
        for slot in role.slots():
            if slot.width is None or named.setdefault(slot.name, slot) == slot:
                continue
            raise JoinError(
                two_widths(named[slot.name], slot),
                hint="a slot has one width in the whole join; give it once",
                span=role.pattern.span if isinstance(role, Source) and not role.has_records else role.span,
            )

    def widen(pattern: Pattern) -> Pattern:
        parts = (named.get(part.name, part) if isinstance(part, Slot) else part for part in pattern.parts)
        return Pattern(tuple(parts), pattern.span)

    def bind(condition: Condition) -> Condition:
        if not isinstance(condition, Bind):
            return condition
        return replace(condition, slot=named.get(condition.slot.name, condition.slot))

    sources = tuple(
        replace(source, pattern=widen(source.pattern), conditions=tuple(map(bind, source.conditions)))
        for source in spec.sources
    )
    return replace(spec, output=widen(spec.output), sources=sources)
