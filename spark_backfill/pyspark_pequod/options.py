"""What the options of the data source say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pequod_grammar.patterns import parse_pattern
from pequod_spark.connection import Connection

from pequod.client.aio import DEFAULT_TARGET
from pequod.errors import JoinError, PequodError
from pequod.language.errors import Span
from pequod.language.spec import Pattern

#: Every option, in the words that messages use; Spark does not mind upper and lower case.
OPTIONS: Final = (
    "target", "tls", "ca", "certificate", "key", "token", "token_file", "insecure", "timeout",
    "first", "last", "prefix", "where.SLOT", "pattern", "keys_only", "partitions", "compacted", "nulls", "rows_per_s",
)  # fmt: skip
#: Those that a session's settings `spark.pequod.*` may hold. Spark shows its settings to whoever sees its pages.
SETTINGS: Final = ("target", "tls", "ca", "certificate", "key", "token_file", "insecure", "timeout")
#: What options that narrow a read by a slot begin with.
WHERE: Final = "where."
_SETTING: Final = "spark.pequod."
#: Spark's own, which it hands on; the paths are what `load` is given.
_SPARKS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval"})
#: What says how to write.
_WRITTEN: Final = frozenset({"nulls", "rows_per_s"})
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


def refuse_written(options: Mapping[str, str]) -> None:
    """Refuse what says how to write, of a read.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _WRITTEN:
            raise OptionError(name, "a read takes none; it is for writes")


def refuse_range(options: Mapping[str, str]) -> None:
    """Refuse what says where to read, of a write: the columns of its rows say where they go.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _RANGE or name.lower().startswith(WHERE):
            raise OptionError(name, "a write takes none: its rows go where `key`, or `pattern` and the slots, say")


def connection(options: Mapping[str, str]) -> Connection:
    """Return how to reach the server; what the options do not say, the variables of the commands do.

    Raises:
        OptionError: An option is malformed, or the token's file cannot be read.
    """
    return Connection(
        target=_said(options, "target", "PEQUOD_TARGET") or DEFAULT_TARGET,
        tls=boolean(options, "tls", "PEQUOD_TLS"),
        ca=_said(options, "ca", "PEQUOD_CA"),
        certificate=_said(options, "certificate", "PEQUOD_CERTIFICATE"),
        key=_said(options, "key", "PEQUOD_KEY"),
        token=_token(options),
        insecure=boolean(options, "insecure", "PEQUOD_INSECURE_TOKEN"),
        timeout_s=positive(options, "timeout", 60.0),
    )


def session_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the settings `spark.pequod.*` of a session hold.

    Raises:
        OptionError: There is one that cannot be a setting.
    """
    found = {name.removeprefix(_SETTING): value for name, value in conf.items() if name.startswith(_SETTING)}
    for name in found:
        if name == "token":
            raise OptionError(_SETTING + name, f"Spark shows its settings; name a file by {_SETTING}token_file")
        if name not in SETTINGS:
            raise OptionError(_SETTING + name, f"there is none; there are {', '.join(SETTINGS)}")
    return found


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


def rate(options: Mapping[str, str]) -> int | None:
    """Return how many rows a second a task may write; None for no limit."""
    return count(options, "rows_per_s", 0) if "rows_per_s" in options else None


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


def boolean(options: Mapping[str, str], name: str, variable: str = "") -> bool:
    """Return whether something is wanted; by default not."""
    text = (_said(options, name, variable) or "false").lower()
    if text not in {"true", "false", "1", "0"}:
        raise OptionError(name, f"{text!r} is neither true nor false")
    return text in {"true", "1"}


def _said(options: Mapping[str, str], name: str, variable: str) -> str | None:
    """Return what an option says, else what a variable says; a variable that is empty says nothing."""
    return options[name] if name in options else os.environ.get(variable) or None


def _token(options: Mapping[str, str]) -> str | None:
    """Return the token, which the driver reads, so that the workers need no file."""
    path = _said(options, "token_file", "PEQUOD_TOKEN_FILE")
    if "token" in options or path is None:
        return _said(options, "token", "PEQUOD_TOKEN")
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise OptionError("token_file", f"{path!r} cannot be read: {error}") from None


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
