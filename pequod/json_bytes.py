r"""JSON with keys and values, which are bytes: a string if they are UTF-8, else an object with one member.

>>> json_bytes(b"caf\xc3\xa9"), json_bytes(b"\xff\x00")
('café', {'base64': '/wA='})
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any


class DoubledMemberError(ValueError):
    """A member stands twice in one object: the first of the two would be lost."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} stands twice in one object; put what both have into one")
        self.name = name


def json_bytes(data: bytes) -> str | dict[str, str]:
    """Return bytes as a value for JSON: text if they are UTF-8, otherwise ``{"base64": ...}``."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def bytes_of_json(value: object) -> bytes:
    """Return the bytes that `json_bytes` wrote as ``value``.

    Raises:
        ValueError: It is neither text nor ``{"base64": ...}``.
    """
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError('it holds half of a surrogate pair, which is no text; use {"base64": ...}') from None
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise ValueError(f"it is no base64: {error}") from None
    raise ValueError('it must be text in quotes or {"base64": ...}')


def read_json(text: bytes) -> Any:
    """Return what JSON says.

    Raises:
        DoubledMemberError: A member stands twice in one object.
        ValueError: It is no JSON; the message has the place.
    """
    try:
        return json.loads(text, object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DoubledMemberError(name)
        found[name] = value
    return found
