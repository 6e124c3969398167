r"""JSON as records have it: what orjson reads, and beyond it all digits of numbers, and halves of surrogate pairs.

orjson reads numbers as doubles, and refuses what is no double, or no UTF-8. All texts take one look in C++; one that
may hold such a thing is read by Python's parser. That one goes down into arrays by calls of itself, as deep as the
stack has room. So in a text of many arrays each such token becomes a marked string, which orjson reads, and which is
then replaced by the value of the token:

    {"a": 1e400, "b": "\ud800", "c": 7}    ->    {"a": "\0n1e400", "b": "\0s\"\\ud800\"", "c": 7}

A marked string begins with NUL; a string that does so by itself is marked, too.
"""

from __future__ import annotations

import json
import re
from typing import Final

import orjson
from orjson import JSONDecodeError, loads

from pequod.language.numerals import Number, Vast, read_number
from pequod.native import core

#: Finds out whether a text may hold a number of more digits than a double has, or of a large exponent. A double keeps
#: 15 digits, and an integer up to 2**64 is none; so a number with a point or an exponent of fewer characters than 16,
#: and an exponent of fewer digits than 3, is kept. An integer may have 19 digits; if it is negative, 18.
_MAY_LOSE: Final = re.compile(
    rb"(?:\A|[\s,:\[])(?:\d{20}|-\d{19}|-?(?=[\d.]{16})\d+[.eE]|-?[\d.]+[eE][+-]?\d{3})"
).search
#: Strings, and numbers of which a double may not keep all.
_TOKEN: Final = re.compile(
    r"""
    "(?:[^"\\]|\\.)*"
    | (?<![\w.+-]) -? (?:
        (?:0|[1-9]\d*) (?:\.\d+)? [eE] [+-]?\d{3,}
        | (?=[\d.]{16}) (?:0|[1-9]\d*) (?:\.\d+ (?:[eE][+-]?\d+)? | [eE][+-]?\d+)
        | [1-9]\d{18,}
      ) (?![\w.+-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
#: Strings that are marked: those with half of a pair, perhaps with both, and those that look as if they were.
_MARKED: Final = re.compile(r'"\\u0000|\\u[dD][89a-fA-F]').search


#: Python's parser takes texts with up to this number of arrays and objects, so of levels, at any place of the stack.
_CONTAINERS_MAX: Final = 100


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _read_integer(text: str) -> Number | Vast:
    return int(text) if len(text) < 19 else read_number(text)


_decode: Final = json.JSONDecoder(parse_float=read_number, parse_int=_read_integer, parse_constant=_refuse).decode


def _may_lose_in_python(value: bytes) -> bool:
    return _MAY_LOSE(value) is not None


may_lose = _may_lose_in_python if core is None else core.may_lose


def read_json(value: bytes) -> object:
    """Return the value of a JSON text: of its numbers all digits, as `read_number` has them.

    Raises:
        ValueError: The text is no JSON, or nested more than 1,024 deep.

    Cost:
        That of orjson and 0.1 µs for an ordinary record of 200 bytes; ten times as much for one with numbers of 16
        digits and a point (bench row: records of long decimals, indexed).
    """
    if not may_lose(value):
        try:
            return loads(value)
        except JSONDecodeError:
            if b"\\u" not in value:
                raise
    text = value.decode()
    if value.count(b"[") + value.count(b"{") <= _CONTAINERS_MAX:
        return _decode(text)
    return _revive(loads(_TOKEN.sub(_mark, text)))


def _mark(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] != '"':
        return f'"\\u0000n{token}"'
    return orjson.dumps(f"\0s{token}").decode() if _MARKED(token) else token


def _revive(root: object) -> object:
    """Replace marked strings by what they stand for; a worklist, since a value may be nested deep."""
    holder = [root]
    work: list[list[object] | dict[str, object]] = [holder]
    while work:
        container = work.pop()
        if isinstance(container, dict):
            if any(name[:1] == "\0" for name in container):
                members = [(_revive_name(name), member) for name, member in container.items()]
                container.clear()
                container.update(members)
            items = list(container.items())
            for name, member in items:
                if isinstance(member, str):
                    if member[:1] == "\0":
                        container[name] = _revive_text(member)
                elif isinstance(member, list | dict):
                    work.append(member)
        else:
            for at, member in enumerate(container):
                if isinstance(member, str):
                    if member[:1] == "\0":
                        container[at] = _revive_text(member)
                elif isinstance(member, list | dict):
                    work.append(member)
    return holder[0]


def _revive_text(text: str) -> object:
    token = text[2:]
    return read_number(token) if text[1] == "n" else json.loads(token)


def _revive_name(name: str) -> str:
    if name[:1] != "\0":
        return name
    if name[1] == "n":
        raise ValueError("a number is no name of a member")
    return str(_revive_text(name))
