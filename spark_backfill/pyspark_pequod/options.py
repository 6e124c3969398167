"""What the options of the data source say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Final

from pequod_grammar.patterns import parse_pattern
from pequod_spark.connection import Connection

from pequod.client.aio import DEFAULT_TARGET
from pequod.engine.errors import Span
from pequod.engine.spec import Pattern
from pequod.errors import JoinError, PequodError

#: Every option, in the words that messages use; Spark does not mind upper and lower case.
OPTIONS: Final = (
    "target", "tls", "ca", "certificate", "key", "token", "insecure", "timeout",
    "first", "last", "prefix", "where.SLOT", "pattern", "keys_only", "partitions", "compacted",
)  # fmt: skip
#: What options that narrow a read by a slot begin with.
WHERE: Final = "where."
#: Spark's own, which it hands on; the paths are what `load` is given.
_SPARKS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval"})
#: What says where to read.
_RANGE: Final = frozenset({"first", "last", "prefix", "path", "paths", "keys_only"})


class OptionError(PequodError):
    """An option of the data source that makes no sense."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option!r}: {reason}")
        self.option = option
        self.reason = reason


def refuse_unknown(options: Mapping[str, str]) -> None:
    """Refuse options that nobody reads: a slip of the pen must not read everything.

    Raises:
        OptionError: There is one.
    """
    for name in options:
        if name.lower() in OPTIONS or name.lower() in _SPARKS or name.lower().startswith(WHERE):
            continue
        near = get_close_matches(name.lower(), OPTIONS, n=1)
        raise OptionError(
            name, f"did you mean {near[0]!r}?" if near else f"there is none; there are {', '.join(OPTIONS)}"
        )


def refuse_range(options: Mapping[str, str]) -> None:
    """Refuse what says where to read, of a write: the columns of its rows say where they go.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _RANGE or name.lower().startswith(WHERE):
            raise OptionError(name, "a write takes none: its rows go where `key`, or `pattern` and the slots, say")


def connection(options: Mapping[str, str]) -> Connection:
    """Return how to reach the server; without a token in the options that of PEQUOD_TOKEN.

    Raises:
        OptionError: An option is malformed.
    """
    return Connection(
        target=options.get("target", os.environ.get("PEQUOD_TARGET") or DEFAULT_TARGET),
        tls=boolean(options, "tls"),
        ca=options.get("ca"),
        certificate=options.get("certificate"),
        key=options.get("key"),
        token=options.get("token", os.environ.get("PEQUOD_TOKEN") or None),
        insecure=boolean(options, "insecure"),
        timeout_s=positive(options, "timeout", 60.0),
    )


def connecting(connection: Connection) -> dict[str, str]:
    """Return the options that say how to reach a server."""
    said = {field.name: getattr(connection, field.name) for field in fields(connection)}
    said["timeout"] = said.pop("timeout_s")
    return {name: _spelt(value) for name, value in said.items() if value is not None}


def key_pattern(options: Mapping[str, str]) -> Pattern | None:
    """Return the pattern that keys are taken apart by, if there is one.

    Raises:
        OptionError: It is malformed, or a slot has the name of another column.
    """
    text = options.get("pattern")
    if text is None:
        return None
    try:
        pattern = parse_pattern(text, Span(0, len(text), 1, 1))
    except JoinError as error:
        raise OptionError("pattern", str(error)) from None
    for slot in pattern.slots():
        if slot.name in {"key", "value", "old", "revision"}:
            raise OptionError("pattern", f"a slot cannot be named {slot.name!r}: that is another column")
    return pattern


def count(options: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number of one or more."""
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise OptionError(name, f"{text!r} is no whole number of 1 or more")
    return int(text)


def positive(options: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds."""
    text = options.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise OptionError(name, f"{text!r} is no positive number of seconds")
    return number


def choice(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Return one of some words, by default the first."""
    text = options.get(name, words[0]).lower()
    if text not in words:
        raise OptionError(name, f"{text!r} is none of {', '.join(words)}")
    return text


def boolean(options: Mapping[str, str], name: str) -> bool:
    """Return whether something is wanted; by default not."""
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise OptionError(name, f"{text!r} is neither true nor false")
    return text == "true"


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
