r"""How keys and values, which are bytes, go in and out as text.

In: an argument is taken as the very bytes that the shell passed. Out, as text: UTF-8, with backslashes,
control characters and bytes that are no UTF-8 written as escapes, so that a key or a value is one line:

>>> print(escaped(b"p|ann|1\tcaf\xc3\xa9 \xff"))
p|ann|1\tcafé \xff

Out, as JSON: a string if the bytes are UTF-8, else an object with one member:

>>> json_bytes(b"caf\xc3\xa9"), json_bytes(b"\xff\x00")
('café', {'base64': '/wA='})
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from typing import Final

_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNPRINTABLE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\udc80-\udcff\u2028\u2029]")


def argument_bytes(argument: str) -> bytes:
    """Return the bytes that the shell passed for this argument."""
    return os.fsencode(argument)


def escaped(data: bytes) -> str:
    """Return data as one line of text, from which the bytes can be told exactly."""
    return _UNPRINTABLE.sub(_escape, data.decode("utf-8", "surrogateescape"))


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def json_bytes(data: bytes) -> str | dict[str, str]:
    """Return data as JSON shows it: text if it is UTF-8, otherwise ``{"base64": ...}``."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def json_line(members: dict[str, object]) -> str:
    """Return one JSON object on one line."""
    return json.dumps(members, ensure_ascii=False)
