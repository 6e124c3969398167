"""What the options of the data source say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Final

from pequod_grammar.patterns import parse_pattern

from pequod.client import AsyncClient, Client
from pequod.client.aio import DEFAULT_TARGET
from pequod.engine.errors import Span
from pequod.engine.ranges import prefix_end, within
from pequod.engine.spec import Pattern
from pequod.errors import JoinError, PequodError

#: Every option, in the words that messages use; Spark does not mind upper and lower case.
OPTIONS: Final = (
    "target", "tls", "ca", "certificate", "key", "token", "insecure", "timeout",
    "first", "last", "prefix", "pattern", "partitions",
)  # fmt: skip
#: Spark's own, which it hands on.
_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "triggerinterval"})


class OptionError(PequodError):
    """An option of the data source that makes no sense."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option!r}: {reason}")
        self.option = option
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server; it goes to the tasks, each of which opens a client of its own."""

    target: str = DEFAULT_TARGET
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = None
    insecure: bool = False
    #: For each call, and for each chunk of a scan: a computed range may have to be computed first.
    timeout_s: float = 60.0

    def open(self) -> Client:
        """Return a client; gRPC channels neither travel nor survive a fork, so tasks call this."""
        return Client(**asdict(self))

    def open_async(self) -> AsyncClient:
        """Return a client for an event loop."""
        return AsyncClient(**asdict(self))


def refuse_unknown(options: Mapping[str, str]) -> None:
    """Refuse options that nobody reads: a slip of the pen must not read everything.

    Raises:
        OptionError: There is one.
    """
    for name in options:
        if name.lower() in OPTIONS or name.lower() in _SPARKS:
            continue
        near = get_close_matches(name.lower(), OPTIONS, n=1)
        raise OptionError(
            name, f"did you mean {near[0]!r}?" if near else f"there is none; there are {', '.join(OPTIONS)}"
        )


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


def key_range(options: Mapping[str, str], pattern: Pattern | None) -> tuple[bytes, bytes | None]:
    """Return the range that the options name, and of it what a pattern leaves.

    Raises:
        OptionError: It is named twice.
    """
    if "prefix" in options and ("first" in options or "last" in options):
        raise OptionError("prefix", "name the range by prefix, or by first and last")
    prefix = options.get("prefix", "").encode()
    first, last = within(prefix, options.get("first", "").encode(), _encoded(options.get("last")))
    if pattern is None:
        return first, last
    stem = pattern.literal_prefix
    end = prefix_end(stem) if any(pattern.slots()) else stem + b"\0"
    return max(first, stem), end if last is None else last if end is None else min(last, end)


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
        if slot.name in {"key", "value"}:
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


def boolean(options: Mapping[str, str], name: str) -> bool:
    """Return whether something is wanted; by default not."""
    text = options.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise OptionError(name, f"{text!r} is neither true nor false")
    return text == "true"


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
