r"""Keys as Spark columns: taken apart by a pattern, and put together from slots.

Keys are any bytes, and Spark's text functions need text. Decoded as ISO 8859-1, each byte becomes the character of the
same number, and back. So a regular expression over this text matches exactly as one over the bytes. If all slots of a
pattern have a width, no text is needed: the slots are at known places.

    pattern   p|<poster>|<time:3>                    p|<poster:3>|<time:3>
    key       p|bob|100                              p|bob|100
    matches   rlike (?s)\Ap\|([^|]+)\|(.{3})\z       9 bytes long, 1..2 are `p|`, 6 is `|`
    poster    group 1                                bytes 3..5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from pequod.language.spec import Pattern, Slot

#: The encoding that maps each byte to one character, in the same order.
BYTES_AS_TEXT: Final = "ISO-8859-1"


class TakenApart(NamedTuple):
    """A column of keys, taken apart by a pattern."""

    #: Whether the key matches the pattern (boolean).
    matches: Column
    #: The bytes of each slot by its name; meaningful only where the key matches.
    slots: dict[str, Column]


def as_text(column: Column) -> Column:
    """Return bytes as text of one character a byte."""
    return f.decode(column, BYTES_AS_TEXT)


def take_apart(pattern: Pattern, key: Column) -> TakenApart:
    """Match keys with a pattern, as the engine's matcher does.

    Cost:
        For each row, a few comparisons if all slots have a width; otherwise a regular expression for the match
        and one for each slot.
    """
    if all(slot.width is not None for slot in pattern.slots()):
        return _take_apart_by_place(pattern, key)
    return _take_apart_by_expression(pattern, key)


def put_together(parts: Sequence[bytes | Slot], slots: Mapping[str, Column]) -> Column:
    """Return the bytes of ``parts``, with these slots filled in."""
    return f.concat(*[f.lit(part) if isinstance(part, bytes) else slots[part.name] for part in parts])


def _take_apart_by_place(pattern: Pattern, key: Column) -> TakenApart:
    slots: dict[str, Column] = {}
    conditions: list[Column] = []
    place = 1
    for part in pattern.parts:
        width = len(part) if isinstance(part, bytes) else part.width
        assert width is not None, "the caller saw that all slots have one"
        found = f.substring(key, place, width)
        if isinstance(part, bytes):
            conditions.append(found == f.lit(part))
        elif part.name in slots:
            conditions.append(found == slots[part.name])
        else:
            slots[part.name] = found
        place += width
    return TakenApart(reduce(and_, conditions, f.length(key) == place - 1), slots)


def _take_apart_by_expression(pattern: Pattern, key: Column) -> TakenApart:
    names: list[str] = []
    expression = ""
    for part in pattern.parts:
        if isinstance(part, bytes):
            expression += "".join(f"\\x{byte:02x}" for byte in part)
        elif part.name in names:
            expression += f"(?:\\{names.index(part.name) + 1})"
        else:
            names.append(part.name)
            expression += "([^|]+)" if part.width is None else f"(.{{{part.width}}})"
    whole = rf"(?s)\A{expression}\z"
    text = as_text(key)
    slots = {name: f.encode(f.regexp_extract(text, whole, group), BYTES_AS_TEXT) for group, name in enumerate(names, 1)}
    return TakenApart(text.rlike(whole), slots)
