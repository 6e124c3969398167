"""The ranges of keys that the options of a read name.

    prefix ["p|ann|", "p|bob|"]                   [p|ann|, p|ann})  [p|bob|, p|bob})
    where.poster ["ann", "bob"]                   [p|ann|, p|ann})  [p|bob|, p|bob})      with p|<poster>|<time:4>
    where.poster ann, where.time.first 0100       [p|ann|0100, p|ann})

Options narrow a read, and conditions do not: Spark keeps the result of pushing one scan's filters into a reader, and
uses it for all scans of the same `load()`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from pequod.language.ranges import lower, prefix_end, within
from pequod.language.spec import DELIMITER, Pattern, Slot
from pyspark_pequod.options import WHERE, OptionError

#: The first key, and the end of the range; None for no end.
Bounds = tuple[bytes, bytes | None]

#: How many ranges options may name: each is a scan of its own.
RANGES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Stem:
    """A prefix of keys, and the values of the slots in it."""

    known: bytes
    slots: Mapping[str, bytes]


def key_ranges(options: Mapping[str, str], pattern: Pattern | None) -> list[Bounds]:
    """Return the ranges that the options name, in order; no range is empty, and no two touch each other.

    Raises:
        OptionError: The options do not name ranges.
    """
    given = [name for name in ("prefix", "path", "paths") if name in options]
    if given and ("first" in options or "last" in options):
        raise OptionError("prefix", "name the range by prefix, or by first and last")
    if len(given) > 1:
        raise OptionError("prefix", "name prefixes in the option or in load(), not in both")
    prefixes = _texts(options, given[0]) if given else [b""]
    first, last = options.get("first", "").encode(), options.get("last")
    slots = _slot_ranges(options, pattern)
    if len(prefixes) * len(slots) > RANGES_MAX:
        raise _too_many("prefix")
    stop = None if last is None else last.encode()
    named = (within(prefix, max(first, start), lower(stop, end)) for prefix, (start, end) in product(prefixes, slots))
    return _united(named)


def _slot_ranges(options: Mapping[str, str], pattern: Pattern | None) -> list[Bounds]:
    """Return the ranges that hold the keys of a pattern whose slots have the values of the options."""
    asked = {name.lower().removeprefix(WHERE): name for name in options if name.lower().startswith(WHERE)}
    if pattern is None:
        if asked:
            raise OptionError(min(asked.values()), "slots need the option `pattern`")
        return [(b"", None)]
    stems = [_Stem(b"", {})]
    for part in pattern.parts:
        if isinstance(part, bytes):
            stems = [_Stem(stem.known + part, stem.slots) for stem in stems]
        elif part.name in stems[0].slots:
            stems = [_Stem(stem.known + stem.slots[part.name], stem.slots) for stem in stems]
        elif name := asked.pop(part.name.lower(), None):
            stems = _told(stems, part, _values(options, name, part))
            if not stems:
                return []
        else:
            first, last = (asked.pop(f"{part.name.lower()}.{end}", None) for end in ("first", "last"))
            _refuse_left(asked, pattern)
            lowest = b"" if first is None else _bound(options, first, part)
            highest = None if last is None else _bound(options, last, part)
            return [_between(stem.known, lowest, highest) for stem in stems]
    _refuse_left(asked, pattern)
    return [(stem.known, stem.known + b"\0") for stem in stems]


def _told(stems: list[_Stem], slot: Slot, values: list[bytes]) -> list[_Stem]:
    if len(stems) * len(values) > RANGES_MAX:
        raise _too_many(WHERE + slot.name)
    return [_Stem(stem.known + value, {**stem.slots, slot.name: value}) for stem, value in product(stems, values)]


def _between(known: bytes, lowest: bytes, highest: bytes | None) -> Bounds:
    """Return the keys that begin with a known prefix and continue in ``[lowest, highest)``."""
    return known + lowest, prefix_end(known) if highest is None else known + highest


def _values(options: Mapping[str, str], name: str, slot: Slot) -> list[bytes]:
    values = _texts(options, name)
    for value in values:
        if slot.width is not None and len(value) != slot.width:
            raise OptionError(name, f"{value.decode()!r} is not {slot.width} bytes long; fill numbers up with zeros")
        if slot.width is None and (not value or DELIMITER in value):
            raise OptionError(name, f"{value.decode()!r} is no value of a slot: it is empty or holds a |")
    return values


def _bound(options: Mapping[str, str], name: str, slot: Slot) -> bytes:
    if slot.width is None:
        raise OptionError(
            name, "keys are in the order of a slot only if it has a width; narrow by `prefix`, or use a condition"
        )
    value = options[name].encode()
    if len(value) > slot.width:
        raise OptionError(name, f"{options[name]!r} is longer than the slot's {slot.width} bytes")
    return value


def _refuse_left(asked: Mapping[str, str], pattern: Pattern) -> None:
    for told, name in asked.items():
        slots = {slot.name.lower(): slot.name for slot in pattern.slots()}
        slot = slots.get(told.removesuffix(".first").removesuffix(".last"))
        if slot is None:
            raise OptionError(name, f"the pattern has no such slot; it has {', '.join(slots.values())}")
        raise OptionError(
            name,
            "it narrows nothing: a range follows from slots on the left, so name the values of each slot before "
            f"{slot}, and of {slot} either values or bounds; or use a condition, which Spark looks at",
        )


def _texts(options: Mapping[str, str], name: str) -> list[bytes]:
    """Return the text of an option, or the texts of its JSON list."""
    text = options[name]
    if not text.startswith("["):
        return [text.encode()]
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise OptionError(name, f'{text!r:.80} begins with [ and is no list of texts, such as ["ann", "bob"]')
    return [one.encode() for one in texts]


def _too_many(option: str) -> OptionError:
    return OptionError(option, f"that makes more than {RANGES_MAX:,} ranges; read more of each and use a condition")


def _united(ranges: Iterable[Bounds]) -> list[Bounds]:
    found: list[Bounds] = []
    for first, last in sorted(ranges, key=lambda bounds: bounds[0]):
        if last is not None and first >= last:
            continue
        if found and (found[-1][1] is None or first <= found[-1][1]):
            start, end = found[-1]
            found[-1] = start, None if end is None or last is None else max(end, last)
        else:
            found.append((first, last))
    return found
