r"""How keys and values, which are bytes, go in and out as text.

In: an argument is the very bytes that the shell passed. Out, as text: UTF-8, with backslashes, control characters and
bytes that are not UTF-8 written as escapes, so that a key or a value is one line:

>>> print(escaped(b"p|ann|1\tcaf\xc3\xa9 \xff"))
p|ann|1\tcafé \xff

Out, as JSON, by `json_bytes`.

Both are read back exactly by `unescaped` and `bytes_of_json`.
"""

from __future__ import annotations

import json
import os
import sys

from pequod.escapes import escaped, unescaped
from pequod.json_bytes import bytes_of_json, json_bytes

__all__ = ["argument_bytes", "bytes_of_json", "counted", "escaped", "json_bytes", "json_line", "unescaped"]


def argument_bytes(argument: str) -> bytes:
    """Return the bytes that the shell passed for this argument."""
    return os.fsencode(argument)


def counted(count: int, thing: str) -> str:
    """Return a number of things, in words.

    >>> counted(1, "key"), counted(0, "row")
    ('1 key', '0 rows')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def json_line(members: dict[str, object]) -> str:
    """Return one JSON object on one line, with escapes where standard output takes no UTF-8."""
    return json.dumps(members, ensure_ascii=sys.stdout.encoding.lower() not in ("utf-8", "utf8"))
