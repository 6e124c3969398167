r"""How keys and values, which are bytes, go in and out as text.

In: an argument is the very bytes that the shell passed. Out, as text: UTF-8, with backslashes, control characters and
bytes that are not UTF-8 written as escapes, so that a key or a value is one line:

>>> print(escaped(b"p|ann|1\tcaf\xc3\xa9 \xff"))
p|ann|1\tcafé \xff

Out, as JSON: a string if the bytes are UTF-8, else an object with one member:

>>> json_bytes(b"caf\xc3\xa9"), json_bytes(b"\xff\x00")
('café', {'base64': '/wA='})

Both are read back exactly by `unescaped` and `bytes_of_json`.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode

from pequod.escapes import escaped, unescaped

__all__ = ["argument_bytes", "bytes_of_json", "counted", "escaped", "json_bytes", "json_line", "unescaped"]


def argument_bytes(argument: str) -> bytes:
    """Return the bytes that the shell passed for this argument."""
    return os.fsencode(argument)


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


def counted(count: int, thing: str) -> str:
    """Return a number of things, in words.

    >>> counted(1, "key"), counted(0, "row")
    ('1 key', '0 rows')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def json_line(members: dict[str, object]) -> str:
    """Return one JSON object on one line, with escapes where standard output takes no UTF-8."""
    return json.dumps(members, ensure_ascii=sys.stdout.encoding.lower() not in ("utf-8", "utf8"))
