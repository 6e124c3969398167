"""Conditions on columns as a range of keys.

    key >= p|bob|, key < p|bob}             [p|bob|, p|bob})
    poster = bob, time >= 0000000100        [p|bob|0000000100, p|bob})      with the pattern p|<poster>|<time:10>

What is said of `key` is met exactly. What is said of slots only narrows the range; Spark looks at the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from pequod.engine.ranges import lower, prefix_end
from pequod.engine.spec import DELIMITER, Pattern, Slot

Bounds = tuple[bytes, bytes | None]


def narrow(
    filters: Iterable[Filter], pattern: Pattern | None, first: bytes, last: bytes | None
) -> tuple[list[Filter], Bounds]:
    """Return the conditions that Spark has to look at itself, and what is left of ``[first, last)``."""
    left: list[Filter] = []
    of_slots: dict[str, list[Filter]] = {}
    for one in filters:
        column: Sequence[str] = getattr(one, "attribute", ())
        if tuple(column) == ("key",) and isinstance(one, IsNotNull):
            continue
        bounds = _key_bounds(one) if tuple(column) == ("key",) else None
        if bounds is None:
            left.append(one)
            if len(column) == 1:
                of_slots.setdefault(column[0], []).append(one)
        else:
            first, last = max(first, bounds[0]), lower(last, bounds[1])
    if pattern is not None:
        start, stop = _slot_bounds(of_slots, pattern)
        first, last = max(first, start), lower(last, stop)
    return left, (first, last)


def _key_bounds(one: Filter) -> Bounds | None:
    """Return the keys that meet a condition, None if they are no range."""
    value = getattr(one, "value", None)
    if not isinstance(value, bytes):
        return None
    match one:
        case EqualTo():
            return value, value + b"\0"
        case GreaterThan():
            return value + b"\0", None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return b"", value
        case LessThanOrEqual():
            return b"", value + b"\0"
        case StringStartsWith():
            return value, prefix_end(value)
        case _:
            return None


def _slot_bounds(of_slots: dict[str, list[Filter]], pattern: Pattern) -> Bounds:
    """Return a range that holds every key of the pattern whose slots meet the conditions."""
    known = b""
    bound: dict[str, bytes] = {}
    for part in pattern.parts:
        if isinstance(part, bytes):
            known += part
            continue
        value = bound.get(part.name) or _equal(of_slots.get(part.name, ()), part)
        if value is None:
            return _range_of_slot(of_slots.get(part.name, ()), part, known)
        bound[part.name] = value
        known += value
    return known, known + b"\0"


def _equal(filters: Iterable[Filter], slot: Slot) -> bytes | None:
    """Return the value that a slot must have; None if it may have several, or none that a key can hold."""
    for one in filters:
        value = _bytes(one) if isinstance(one, EqualTo) else None
        if value and (DELIMITER not in value if slot.width is None else len(value) == slot.width):
            return value
    return None


def _range_of_slot(filters: Iterable[Filter], slot: Slot, known: bytes) -> Bounds:
    first, last = known, prefix_end(known)
    for one in filters:
        value = _bytes(one)
        if not value:
            continue
        match one:
            case GreaterThan() | GreaterThanOrEqual():
                first = max(first, known + value)
            case LessThan() | LessThanOrEqual():
                # `|` sorts above letters: p|bob|.. is above p|bob2, so of a slot without a width one byte is certain.
                last = lower(last, prefix_end(known + value[: slot.width or 1]))
            case StringStartsWith():
                stem = known + value[: slot.width]
                first, last = max(first, stem), lower(last, prefix_end(stem))
            case _:
                pass
    return first, last


def _bytes(one: Any) -> bytes | None:
    """Return the operand of a condition on a slot; numbers do not order as their texts do."""
    value = getattr(one, "value", None)
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None
