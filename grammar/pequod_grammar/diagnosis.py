"""From the parser's error to a message that tells the author what to change."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from lark import Token
from lark.exceptions import UnexpectedToken

from pequod.language.errors import JoinError, Span
from pequod.language.spec import DELIMITER, Operator
from pequod_grammar.sql import SQL

_OPERATORS = [operator.value for operator in Operator]
_MAINTENANCE = ["push", "pull", "snapshot"]
#: The tokens that are not words, whatever word the parser expected in their place.
_MARKS = {"EQUAL", "_END", "$END"}
_SOURCE = f"a source is an operator and a pattern: {', '.join(_OPERATORS)}"
_OPERANDS = "write a number, a text in double quotes, true, false, null, or a slot such as <author>"
_CONDITIONS = 'write, for example, `author = <author>`, `stock > 0`, `status = "open"` or `title exists`'
_ORDER = "after its pattern, a source has `with` and its conditions, then `as` and its fields, each once"
_WITH = ("with", "where", "when", "if", "having", "filter")
_KEEP = "`keep` ends a join: `keep last 400 of <user>`, `keep first 10`"
_EXAMPLE = "a join reads `output = check source copy source;`"


def span_of(token: Token) -> Span:
    """Return the place of a token."""
    assert token.start_pos is not None
    assert token.end_pos is not None
    assert token.line is not None
    assert token.column is not None
    return Span(token.start_pos, token.end_pos, token.line, token.column)


def diagnose(error: UnexpectedToken, text: str) -> JoinError:
    """Return the error for the token that the parser did not expect."""
    token, expected = error.token, error.accepts or error.expected
    is_end = token.type == "$END"
    span = end_span(text) if is_end else span_of(token)
    found = "the text ends" if is_end else f"{str(token)!r} stands"
    if (opened := _open_slot(error)) is not None:
        span = opened
        reason, hint = "the slot is not closed", "end it with `>`: <name> or <name:width>, without white space"
    elif (of_sql := _of_sql(error, expected)) is not None:
        span, reason, hint = of_sql
    elif "EQUAL" in expected:
        reason, hint = f"{found} where `=` is expected after the output pattern", _EXAMPLE
    elif "SNAPSHOT" in expected:
        reason, hint = _bad_word(token, [*_OPERATORS, *_MAINTENANCE], found, "a source")
    elif (of_keep := _in_keep(token, expected, found, text)) is not None:
        reason, hint = of_keep
    elif (of_records := _in_records(token, expected, found, text)) is not None:
        reason, hint = of_records
    elif "OPERATOR" in expected:
        if _starts_declaration(token, text):
            reason, hint = "a new join starts before the last one is ended", "put a `;` between them"
        else:
            words = [*_OPERATORS, "keep"] if "KEEP" in expected else _OPERATORS
            reason, hint = _bad_word(token, words, found, "the next source")
    elif "SECONDS" in expected:
        reason, hint = f"{found} where the age of the snapshot is expected", "write seconds: `snapshot 2.5`"
    else:
        reason, hint = f"{found} where a pattern is expected", _EXAMPLE
    return JoinError(reason, hint=hint, span=span, text=text)


def end_span(text: str) -> Span:
    """Return the place after the last visible character."""
    body = text.rstrip()
    line = body.count("\n") + 1
    column = len(body) - (body.rfind("\n") + 1) + 1
    return Span(len(body), len(body) + 1, line, column)


def _of_sql(error: UnexpectedToken, expected: Collection[str]) -> tuple[Span, str, str] | None:
    """Return the place, the reason and the hint for a word of SQL that the language does not have.

    It is the word that the parser did not expect, or the one before, which was taken for a pattern or a field.
    """
    token, before = error.token, error.token_history[-1] if error.token_history else None
    if token.type in _MARKS:
        return None
    # An operator or a condition follows at once: `check not b|<x>`, `with not open = true`.
    is_behind = not {"WITH", "EXISTS"}.isdisjoint(expected)
    if before is not None and is_behind and (taken := str(before).lower()) in ("not", "distinct"):
        return span_of(before), f"the language has no {str(before)!r}", SQL[taken]
    word = str(token).lower()
    if word not in SQL or (word in _WITH and "WITH" in expected and word != "having"):
        return None
    return span_of(token), f"the language has no {str(token)!r}", SQL[word]


def _bad_word(token: Token, words: list[str], found: str, wanted: str) -> tuple[str, str]:
    word = str(token)
    if token.type in _MARKS:
        return f"{found} where {wanted} is expected", _SOURCE
    if word in _MAINTENANCE:
        return f"{found} where {wanted} is expected", "push, pull or snapshot stands once, right after the `=`"
    if word == "keep":
        return f"{found} where {wanted} is expected", _KEEP
    if DELIMITER.decode() in word:
        return f"{word!r} has no operator before it", _SOURCE
    close = get_close_matches(word.lower(), words, n=1)
    guess = f"did you mean `{close[0]}`? " if close else ""
    return f"{word!r} is no operator", f"{guess}operators are {', '.join(_OPERATORS)}"


def _in_keep(token: Token, expected: Collection[str], found: str, text: str) -> tuple[str, str] | None:
    """Return the reason and the hint for a mistake after `keep`; None if it is another one."""
    if "END" in expected:
        return f"{found} where `last` or `first` is expected", _KEEP
    if "COUNT" in expected:
        return f"{found} where a number of keys is expected", _KEEP
    if "SLOT" in expected and "FIELD" not in expected:
        return f"{found} where a slot is expected", f"{_KEEP}; several slots stand between commas"
    if "OF" not in expected and ("_COMMA" not in expected or "OPERATOR" in expected or "_CLOSE" in expected):
        return None
    if _starts_declaration(token, text):
        return "a new join starts before the last one is ended", "put a `;` between them"
    if str(token).startswith("<"):
        return f"{found} where the join ends", "several slots stand between commas: `of <room>, <day>`"
    return f"{found} where the join ends", _KEEP


def _in_records(token: Token, expected: Collection[str], found: str, text: str) -> tuple[str, str] | None:
    """Return the reason and the hint for a mistake after `with` or `as`; None if it is another one."""
    word = str(token)
    if word.startswith('"') and {"OPERAND", "FIELD"}.intersection(expected):
        return "the text is not closed", 'end it with `"`, on the same line'
    if "OPERAND" in expected:
        return f"{found} where a literal or a slot is expected", _OPERANDS
    if "COMPARATOR" in expected:
        return f"{found} where a comparison is expected", "write `field = <slot>`, `field > 0` or `field exists`"
    if "_CLOSE" in expected:
        return f"{found} inside of `{{ }}`", "fields stand between commas, and `}` ends them: `as {title, votes}`"
    if "_OPEN" in expected:
        return f"{found} where fields are expected", "write one field, `as amount`, or several, `as {title, votes}`"
    if "FIELD" in expected:
        wanted, hint = (
            ("a condition", _CONDITIONS) if "SLOT" in expected else ("a field", "such as `as {title, votes}`")
        )
        return f"{found} where {wanted} is expected", hint
    if "OPERATOR" not in expected or token.type in _MARKS:
        return None
    if word == ",":
        return f"{found} after one field", "several fields stand in `{ }`: `as {title, votes}`"
    if "_COMMA" in expected and _is_condition(token, text):
        return f"{found} after a condition", "a `,` separates conditions, all of which are to hold"
    if word.lower() in _WITH:
        if "WITH" in expected:
            return f"{word!r} is no operator", "did you mean `with`? Conditions follow it"
        return f"{found} where the next source is expected", _ORDER
    if word == "as":
        return f"{found} where the next source is expected", _ORDER
    return None


def _is_condition(token: Token, text: str) -> bool:
    """Return whether a word seems to begin one more condition, or to stand between two."""
    if str(token).lower() in ("and", "&&", "or", "||"):
        return True
    rest = text[token.end_pos :].lstrip()
    return DELIMITER.decode() not in str(token) and bool(re.match(r"[=!<>]|exists\b", rest))


def _open_slot(error: UnexpectedToken) -> Span | None:
    """Return the place of a `<` that is not closed in the word before the mistake: white space or `=` cut it short."""
    before = error.token_history[-1] if error.token_history else None
    if before is None or before.type != "WORD" or before.rfind("<") <= before.rfind(">"):
        return None
    whole, at = span_of(before), before.rfind("<")
    return Span(whole.start + at, whole.end, whole.line, whole.column + at)


def _starts_declaration(token: Token, text: str) -> bool:
    return token.type not in _MARKS and text[token.end_pos :].lstrip().startswith("=")
