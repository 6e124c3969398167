r"""Bytes as text for people: one line, from which the bytes follow exactly.

>>> print(escaped(b"p|ann|1\tcaf\xc3\xa9 \xff"))
p|ann|1\tcafé \xff
>>> print(shown(b"it's"), shown(b""), shown(b"k" * 100, bytes_max=5))
'it\x27s' '' 'kkkkk'… (100 bytes)
>>> unescaped(escaped(b"p|\0\xff")) == b"p|\0\xff"
True
"""

from __future__ import annotations

import re
import shlex
from typing import Final

_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNPRINTABLE: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\udc80-\udcff\u2028\u2029]")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_UNESCAPES: Final = {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"r": b"\r"}
#: The part of a key that messages show: a server's refusal must fit into the metadata of a gRPC reply, 8 KiB.
_SHOWN_BYTES_MAX: Final = 80


def escaped(data: bytes) -> str:
    """Return data as UTF-8, with escapes for backslashes, control characters and bytes that are not UTF-8."""
    return _UNPRINTABLE.sub(_escape, data.decode("utf-8", "surrogateescape"))


def unescaped(text: str) -> bytes:
    """Return the bytes that `escaped` wrote as text.

    Raises:
        ValueError: The text holds an unknown escape, or bytes that are not UTF-8.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("it holds bytes that are no UTF-8; write them as escapes, such as \\xff") from None
    return _ESCAPE.sub(_unescape, data) if b"\\" in data else data


def shown(key: bytes, *, bytes_max: int = _SHOWN_BYTES_MAX) -> str:
    """Return a key as a message shows it: escaped, in quotes, and cut if it is long."""
    text = escaped(key[:bytes_max]).replace("'", "\\x27")
    return f"'{text}'" if len(key) <= bytes_max else f"'{text}'… ({len(key)} bytes)"


def shell_word(key: bytes) -> str:
    r"""Return a key as a word of a shell; one with escapes, which a shell passes on as they are, as bash reads it.

    >>> print(shell_word(b"p|"), shell_word(b"p|\xff"))
    'p|' $'p|\xff'
    """
    text = escaped(key)
    return "$'{}'".format(text.replace("'", r"\x27")) if "\\" in text else shlex.quote(text)


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _unescape(match: re.Match[bytes]) -> bytes:
    name = match.group(1)
    if len(name) == 3:
        return bytes.fromhex(name[1:].decode("ascii"))
    if name in _UNESCAPES:
        return _UNESCAPES[name]
    raise ValueError(r"a backslash must stand as \\, or begin \t, \n, \r or \x and two hexadecimal digits")
