"""Values of the conformance script, and what they are in Python: README.md defines them.

"a|1", {"base64": "/w=="}    data_of     b"a|1", b"\\xff"
Rows, Met, JoinExplanation   json_of     what the script has
found, expected              differing   where they differ, in words
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from pequod.answers.explanations import JoinExplanation, RangeExplanation
from pequod.answers.joins import Join
from pequod.answers.rows import Rows
from pequod.answers.statistics import Statistics
from pequod.answers.transacted import Transacted
from pequod.client import Change
from pequod.errors import PequodError
from pequod.language.conditions import Met, Unmet
from pequod.refusals import REFUSALS


def data_of(value: Any) -> Any:
    """Return a value of the script with its bytes as bytes."""
    match value:
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"repeat": str(text), "times": int(times)}:
            return text.encode() * times
        case str():
            return value.encode()
        case list():
            return [data_of(item) for item in value]
    return value


def _text_of(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_of(value: Any) -> Any:
    """Return what a call gave as the script has it."""
    match value:
        case Enum():
            return value.value
        case bytes():
            return _text_of(value)
        case Rows(keys, values):
            return [[json_of(key), json_of(value)] for key, value in zip(keys, values, strict=True)]
        case Change():
            texts = {"key": json_of(value.key), "old": json_of(value.old), "new": json_of(value.new)}
            return {**texts, "reason": value.reason or "written"}
        case Met():
            return {"met": True}
        case Unmet(present):
            return {"met": False, "present": json_of(present)}
        case Transacted(held, outcomes):
            return {"held": held, "outcomes": json_of(outcomes)}
        case Join(name, text):
            return {"name": name, "text": text}
        case JoinExplanation():
            sources = [{**asdict(one), "narrowed_by": one.narrowed_by or ""} for one in value.sources]
            return json_of({**asdict(value), "sources": sources})
        case RangeExplanation():
            return json_of(asdict(value))
        case Statistics():
            tables = [{"table": table, **asdict(one)} for table, one in value.tables.items()]
            joins = [{"join": name, **asdict(one)} for name, one in value.joins.items()]
            return json_of({**asdict(value), "tables": tables, "joins": joins})
        case dict():
            return {name: json_of(one) for name, one in value.items()}
        case list() | tuple():
            return [json_of(item) for item in value]
    return value


def result_of(call: str, result: Any) -> Any:
    """Return what a command of a name gave as the script has it."""
    if call == "ttl" and isinstance(result, float):
        return "never" if result == math.inf else round(result * 1000)
    return json_of(result)


def error_of(error: PequodError) -> dict[str, Any]:
    """Return an error as the script has it."""
    refusal = REFUSALS[type(error)]
    return {"code": refusal.code, "reason": type(error).__name__, "facts": refusal.say(error)}


def differing(found: Any, expected: Any, place: str = "") -> str:
    """Return where a value differs from the expected one, in words; empty if it matches."""
    match expected:
        case {"at_most": maximum}:
            fits = type(found) in {int, float} and 0 < found <= maximum
        case {"contains": text}:
            fits = isinstance(found, str) and text in found
        case {"repeat": text, "times": times}:
            fits = found == text * times
        case Mapping() if isinstance(found, Mapping):
            if absent := expected.keys() - found.keys():
                return f"{place or 'the outcome'} is {found!r}, without {min(absent)}"
            parts = (differing(found[name], one, f"{place}.{name}") for name, one in expected.items())
            return next((part for part in parts if part), "")
        case list() if isinstance(found, Sequence) and len(found) == len(expected):
            pairs = enumerate(zip(found, expected, strict=True))
            parts = (differing(one, other, f"{place}[{number}]") for number, (one, other) in pairs)
            return next((part for part in parts if part), "")
        case _:
            fits = type(found) is type(expected) and found == expected
    return "" if fits else f"{place or 'the outcome'} is {found!r}, not {expected!r}"
