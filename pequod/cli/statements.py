r"""Statements of the shell: where a statement ends, and its words.

Words are those of a POSIX shell, without its special characters: quotes are for keys with spaces.

>>> words("put p|bob|0000000100 'hello there'")
['put', 'p|bob|0000000100', 'hello there']

A join is taken unchanged, may have several lines, and ends with a semicolon:

>>> is_complete("join add karma|<author> =")
False
>>> words("join add karma|<author> =\n  count vote|<author>|<voter>;")
['join', 'add', '--', 'karma|<author> =\n  count vote|<author>|<voter>;']
"""

from __future__ import annotations

import re
import shlex
from typing import Final

#: Options may stand before the declaration; the last group is the declaration.
_ADD: Final = re.compile(r"\s*join\s+add\b((?:\s+-\S+)*)\s*(.*)", re.DOTALL)
#: A comment, as in the language of joins: to the end of the line.
_COMMENT: Final = re.compile(r"(?<![^\s;])(//|#)[^\n]*")


def is_complete(text: str) -> bool:
    """Return whether a statement is complete."""
    adds = _ADD.fullmatch(text)
    if adds is None:
        return True
    options, declaration = adds.groups()
    if declaration.startswith("@") or {"-h", "--help"} & set(options.split()):
        return True
    return _COMMENT.sub("", declaration).rstrip().endswith(";")


def words(text: str) -> list[str]:
    """Return the words of a complete statement; none of an empty one or of a comment.

    Raises:
        ValueError: A quote is not closed.
    """
    if text.lstrip().startswith("#"):
        return []
    adds = _ADD.fullmatch(text)
    if adds is None:
        return shlex.split(text)
    options, declaration = adds.groups()
    rest = ["--", declaration.rstrip()] if declaration else []
    return ["join", "add", *options.split(), *rest]
