"""Transactions as JSON, as commands read them from files and servers from requests.

    {"compares": [{"key": "lock|a", "is": "absent"}], "then": [{"put": "lock|a", "value": "me"}], "otherwise": []}

A part that is not as it must be is told with its place: `then[2].value: it must be text in quotes or {"base64": ...}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pequod.answers.transacted import Outcome, Transacted
from pequod.interface.transaction_parts import (
    Add,
    Count,
    Get,
    Put,
    Remove,
    Scan,
    TransactionCommand,
    absent,
    present,
    value_of,
)
from pequod.json_bytes import bytes_of_json, json_bytes, read_json
from pequod.language.transactions import KeyCompare

T = TypeVar("T")
#: The members of each command beside the first one, which names it.
_COMMANDS: Final = {
    "get": (),
    "put": ("value", "ttl_s", "keep_ttl"),
    "remove": (),
    "add": ("delta",),
    "scan": ("limit", "reverse"),
    "count": (),
}
_OPERATORS: Final = ("is", "=", "!=", "<", ">")


class FormError(ValueError):
    """A part of the form is not as it must be; the text has its place."""


def parts_of(text: bytes) -> tuple[list[KeyCompare], list[TransactionCommand], list[TransactionCommand]]:
    """Return the compares and the commands of a form.

    Raises:
        FormError: A part is not as it must be; the message has its place.
    """
    try:
        form = read_json(text)
    except ValueError as error:
        raise FormError(str(error)) from None
    _refuse_members("", form, (), ("compares", "then", "otherwise"))
    compares = _each("compares", form, _compare)
    return compares, _each("then", form, _command), _each("otherwise", form, _command)


def _each(name: str, form: dict[str, Any], make: Callable[[str, Any], T]) -> list[T]:
    entries = form.get(name, [])
    if not isinstance(entries, list):
        raise FormError(f"{name}: it must be a list")
    return [make(f"{name}[{number}]", entry) for number, entry in enumerate(entries)]


def _compare(place: str, entry: Any) -> KeyCompare:
    _refuse_members(place, entry, ("key",), _OPERATORS)
    operators = [name for name in _OPERATORS if name in entry]
    if len(operators) != 1:
        raise FormError(f"{place}: it must have one of {', '.join(map(repr, _OPERATORS))}")
    (operator,), key = operators, _bytes(f"{place}.key", entry["key"])
    value = entry[operator]
    if operator == "is":
        if value not in ("absent", "present"):
            raise FormError(f'{place}.is: it must be "absent" or "present"')
        return absent(key) if value == "absent" else present(key)
    read = _number if operator in ("<", ">") else _bytes
    present_value, other = value_of(key), read(f"{place}.{operator}", value)
    match operator:
        case "=":
            return present_value == other
        case "!=":
            return present_value != other
        case "<":
            return present_value < other
        case _:
            return present_value > other


def _command(place: str, entry: Any) -> TransactionCommand:
    names = [name for name in _COMMANDS if isinstance(entry, dict) and name in entry]
    if len(names) != 1:
        raise FormError(f"{place}: it must be an object with one of {', '.join(map(repr, _COMMANDS))}")
    (name,) = names
    needed = _COMMANDS[name][:1] if name in ("put", "add") else ()
    _refuse_members(place, entry, (name, *needed), _COMMANDS[name])
    if name in ("scan", "count"):
        bounds = _range(f"{place}.{name}", entry[name])
        if name == "count":
            return Count(**bounds)
        limit, reverse = entry.get("limit"), entry.get("reverse", False)
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise FormError(f"{place}.limit: it must be a number of rows")
        if not isinstance(reverse, bool):
            raise FormError(f"{place}.reverse: it must be true or false")
        return Scan(**bounds, limit=limit, reverse=reverse)
    key = _bytes(f"{place}.{name}", entry[name])
    if name == "put":
        return Put(key, _bytes(f"{place}.value", entry["value"]), *_ttl(place, entry))
    if name == "add":
        return Add(key, _number(f"{place}.delta", entry["delta"]))
    return Get(key) if name == "get" else Remove(key)


def _range(place: str, bounds: Any) -> dict[str, bytes]:
    if not isinstance(bounds, list):
        return {"prefix": _bytes(place, bounds)}
    if len(bounds) != 2:
        raise FormError(f"{place}: a range is [FIRST, LAST]")
    return {"first": _bytes(f"{place}[0]", bounds[0]), "last": _bytes(f"{place}[1]", bounds[1])}


def _ttl(place: str, entry: dict[str, Any]) -> tuple[float | None, bool]:
    ttl_s, keep_ttl = entry.get("ttl_s"), entry.get("keep_ttl", False)
    if ttl_s is not None and (not isinstance(ttl_s, int | float) or isinstance(ttl_s, bool)):
        raise FormError(f"{place}.ttl_s: it must be a number of seconds")
    if not isinstance(keep_ttl, bool):
        raise FormError(f"{place}.keep_ttl: it must be true or false")
    return ttl_s, keep_ttl


def _number(place: str, value: object) -> bytes:
    """Return the digits of a number: an integer of JSON, or text."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return _bytes(place, str(value) if is_integer else value)


def _bytes(place: str, value: object) -> bytes:
    try:
        return bytes_of_json(value)
    except ValueError as error:
        raise FormError(f"{place}: {error}") from None


def _refuse_members(place: str, entry: Any, needed: tuple[str, ...], others: tuple[str, ...]) -> None:
    """Pass if an entry is an object with the members that it needs, and no others than it may have."""
    start = f"{place}: " if place else ""
    if not isinstance(entry, dict):
        raise FormError(f"{start}it must be an object, {{...}}")
    for name in needed:
        if name not in entry:
            raise FormError(f"{start}it lacks {name!r}")
    for name in entry:
        if name not in (*needed, *others):
            raise FormError(f"{start}it has {name!r}; members are {', '.join(map(repr, (*needed, *others)))}")


def form_of(done: Transacted) -> dict[str, object]:
    """Return an outcome as JSON has it."""
    return {"held": done.held, "outcomes": [_shown(outcome) for outcome in done.outcomes]}


def _shown(outcome: Outcome) -> object:
    if isinstance(outcome, bytes):
        return json_bytes(outcome)
    if isinstance(outcome, tuple):
        return [[json_bytes(key), json_bytes(value)] for key, value in zip(*outcome, strict=True)]
    return outcome
