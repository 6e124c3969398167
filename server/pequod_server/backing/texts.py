r"""The texts that PostgreSQL writes for arrays, composites and moments, and the texts that it takes for them.

{red,"a,b",NULL,{1,2}}    red, a,b, null, an array of 1 and 2
(7,"a, b",)               7, a, b; null
2001-09-09 01:46:40+00    2001-09-09T01:46:40+00:00
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

#: An element of an array: NULL, a text, or an array.
Element: TypeAlias = "str | list[Element] | None"

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_FIELD: Final = re.compile(r'(?:"((?:[^"\\]|\\.|"")*)"|([^,"]*))(,|\Z)', re.DOTALL)
_IN_FIELD: Final = re.compile(r'\\(.)|"(")', re.DOTALL)
_UTC: Final = re.compile(r"\+00(?= |\Z)")


def split_array(text: str, delimiter: str) -> list[Element]:
    """Return the elements of an array; the bounds that may stand before it are left out."""
    top: list[Element] = []
    stack = [top]
    for match in _elements(delimiter).finditer(text, text.index("{")):
        brace, quoted, bare = match.groups()
        if brace == "{":
            inner: list[Element] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif brace:
            stack.pop()
        elif quoted is not None:
            stack[-1].append(_ESCAPED.sub(r"\1", quoted))
        else:
            stack[-1].append(None if bare.upper() == "NULL" else _ESCAPED.sub(r"\1", bare))
    (array,) = top
    assert isinstance(array, list), "the text begins with a brace"
    return array


@cache
def _elements(delimiter: str) -> re.Pattern[str]:
    bare = rf'(?:[^{{}}"\\{re.escape(delimiter)}]|\\.)+'
    return re.compile(rf'([{{}}])|"((?:[^"\\]|\\.)*)"|({bare})', re.DOTALL)


def split_composite(text: str) -> list[str | None]:
    """Return the fields of a composite value."""
    fields: list[str | None] = []
    for match in _FIELD.finditer(text[1:-1]):
        quoted, bare, end = match.groups()
        fields.append((bare or None) if quoted is None else _IN_FIELD.sub(r"\1\2", quoted))
        if not end:
            break
    return fields


def array_text(elements: Sequence[str | None], delimiter: str) -> str:
    """Return the text of an array; elements that are arrays themselves are given as their texts, with braces."""
    return "{" + delimiter.join("NULL" if one is None else one for one in elements) + "}"


def quoted_element(text: str) -> str:
    """Return an element of an array, or a field of a composite, in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def composite_text(fields: Sequence[str | None]) -> str:
    """Return the text of a composite value."""
    return "(" + ",".join("" if one is None else quoted_element(one) for one in fields) + ")"


def iso_moment(text: str) -> str:
    """Return a timestamp in ISO 8601, one with a time zone in UTC; infinity and years BC as PostgreSQL's JSON has them.

    >>> iso_moment("2001-09-09 01:46:40.25+00"), iso_moment("2001-09-09 01:46:40"), iso_moment("-infinity")
    ('2001-09-09T01:46:40.25+00:00', '2001-09-09T01:46:40', '-infinity')
    """
    return _UTC.sub("+00:00", text.replace(" ", "T", 1))
