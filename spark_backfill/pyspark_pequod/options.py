"""The options of the data source, checked."""

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

#: Every option, as messages spell it; Spark ignores upper and lower case.
OPTIONS: Final = (
    "target", "tls", "ca", "certificate", "key", "token", "token_file", "insecure", "timeout",
    "first", "last", "prefix", "where.SLOT", "pattern", "keys_only", "partitions", "compacted",
    "maxRowsPerTrigger", "maxBytesPerTrigger", "nulls", "rows_per_s",
)  # fmt: skip
#: The options in lower case.
_KNOWN: Final = {name.lower(): name for name in OPTIONS}
#: The options that a session's settings `spark.pequod.*` may hold. Spark's web pages show all settings.
SETTINGS: Final = ("target", "tls", "ca", "certificate", "key", "token_file", "insecure", "timeout")
#: The beginning of options that narrow a read by a slot.
WHERE: Final = "where."
_SETTING: Final = "spark.pequod."
#: Options of Spark's own that it hands on; the paths are the arguments of `load`.
_SPARKS: Final = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "triggerinterval"})
#: Options that say how to write.
_WRITTEN: Final = frozenset({"nulls", "rows_per_s"})
#: Options that say how much a batch of a stream holds.
_LIMITS: Final = frozenset({"maxrowspertrigger", "maxbytespertrigger"})
#: Options that say where to read.
_RANGE: Final = frozenset({"first", "last", "prefix", "path", "paths", "keys_only"})


class OptionError(PequodError):
    """An option of the data source that is wrong."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option!r}: {reason}")
        self.option = option
        self.reason = reason


def refuse_unknown(options: Mapping[str, str]) -> None:
    """Refuse unknown options: a misspelt option must not read everything.

    Raises:
        OptionError: There is an unknown one.
    """
    for name in options:
        if name.lower() in _KNOWN or name.lower() in _SPARKS or name.lower().startswith(WHERE):
            continue
        near = get_close_matches(name.lower(), _KNOWN, n=1)
        raise OptionError(
            name, f"did you mean {_KNOWN[near[0]]!r}?" if near else f"there is none; there are {', '.join(OPTIONS)}"
        )


def refuse_written(options: Mapping[str, str]) -> None:
    """Refuse options of a read that say how to write.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _WRITTEN:
            raise OptionError(name, "a read takes none; it is for writes")


def refuse_limits(options: Mapping[str, str], what: str) -> None:
    """Refuse the limits of a stream's batches elsewhere.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _LIMITS:
            raise OptionError(name, f"{what} takes none; it is for streams that are read")


def refuse_range(options: Mapping[str, str]) -> None:
    """Refuse options of a write that say where to read: the columns of the rows say where they go.

    Raises:
        OptionError: There is such an option.
    """
    for name in options:
        if name.lower() in _RANGE or name.lower().startswith(WHERE):
            raise OptionError(name, "a write takes none: its rows go where `key`, or `pattern` and the slots, say")


def connection(options: Mapping[str, str]) -> Connection:
    """Return how to reach the server, from the options and else from the environment variables of the commands.

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
        OptionError: A setting is not one that a session may have.
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
    """Return the pattern for taking keys apart, if the options have one.

    Raises:
        OptionError: The pattern is malformed, or a slot has the name of another column.
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
    """Return how many rows a task may write in a second; None for no limit."""
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
    """Return the option's word, one of some; by default the first of them."""
    text = options.get(name, words[0]).lower()
    if text not in words:
        raise OptionError(name, f"{text!r} is none of {', '.join(words)}")
    return text


def boolean(options: Mapping[str, str], name: str, variable: str = "") -> bool:
    """Return whether a yes-or-no option is set; by default it is not."""
    text = (_said(options, name, variable) or "false").lower()
    if text not in {"true", "false", "1", "0"}:
        raise OptionError(name, f"{text!r} is neither true nor false")
    return text in {"true", "1"}


def _said(options: Mapping[str, str], name: str, variable: str) -> str | None:
    """Return the text of an option, else of an environment variable; an empty variable counts as not set."""
    return options[name] if name in options else os.environ.get(variable) or None


def _token(options: Mapping[str, str]) -> str | None:
    """Return the token. The driver reads its file, so that workers need no file."""
    path = _said(options, "token_file", "PEQUOD_TOKEN_FILE")
    if "token" in options or path is None:
        return _said(options, "token", "PEQUOD_TOKEN")
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise OptionError("token_file", f"{path!r} cannot be read: {error}") from None


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
