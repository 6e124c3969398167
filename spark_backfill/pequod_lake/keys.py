"""Keys of rows as the catalog holds them: a list in JSON, which orders as the rows do.

A moment is its microseconds, and bytes are their hexadecimal digits; what is left of JSON compares in Python as the
values do in Arrow: texts by code points, which is the order of their bytes in UTF-8. Nulls come last.

>>> rows = pa.table({"a": [b"x", b"y"], "b": [1, None]})
>>> key_text(rows, ("a", "b"), 1)
'["79",null]'
>>> key_at(rows, ("a", "b"), 0) < parsed(key_text(rows, ("a", "b"), 1))
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

#: Of each column whether it is null, and its value.
Key: TypeAlias = tuple[tuple[bool, Any], ...]


def key_at(rows: Any, columns: Sequence[str], place: int) -> Key:
    """Return the key of a row."""
    return tuple(ordered(plain(rows[name][place])) for name in columns)


def key_text(rows: Any, columns: Sequence[str], place: int) -> str:
    """Return the key of a row as text."""
    return json.dumps([value for _, value in key_at(rows, columns, place)], ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=1 << 15)
def parsed(text: str) -> Key:
    """Return the key that a text says."""
    return tuple(map(ordered, json.loads(text)))


def plain(scalar: Any) -> Any:
    """Return a scalar of Arrow as a value that JSON has and that orders as it does."""
    if pa.types.is_timestamp(scalar.type):
        return scalar.value
    value = scalar.as_py()
    return value.hex() if isinstance(value, bytes) else value


def ordered(value: Any) -> tuple[bool, Any]:
    """Return what a value is compared by."""
    return value is None, value


def values_of(key: Key, kinds: Iterable[Any]) -> list[Any]:
    """Return the values of a key as Python has those of Arrow's types; None for a null."""
    return [_value(value, kind) for (_, value), kind in zip(key, kinds, strict=True)]


def _value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, kind).as_py()
    return bytes.fromhex(value) if pa.types.is_binary(kind) else value
