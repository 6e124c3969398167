"""What a source sees in a record, naively: the half of `pequod.engine.testing` that looks at fields.

All numbers are decimals, and no parser or printer of the engine takes part.
"""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any, assert_never

import orjson

from pequod.language.spec import (
    Bind,
    Comparator,
    Compare,
    CompareSlot,
    Condition,
    Exists,
    NumberForm,
    OneField,
    Operator,
    Path,
    Slot,
    SomeFields,
    Source,
)

_LESS = (Comparator.LESS, Comparator.AT_MOST)
_GREATER = (Comparator.GREATER, Comparator.AT_LEAST)


class _Vast:
    """A number whose exponent has more than 9 digits."""

    def __init__(self, text: str) -> None:
        self.text = text


def seen(source: Source, slots: dict[str, bytes], value: bytes) -> list[tuple[dict[str, bytes], bytes]]:
    """Return what a source sees in a value of a key with these slots: all slots, and what it gives."""
    if not source.has_records:
        return [(slots, value)]
    try:
        record = parse(value.decode())
    except ValueError:
        return []
    given = _given(source, record, value) if isinstance(record, _kinds(source)) else None
    if given is None:
        return []
    found = [slots]
    for condition in source.conditions:
        found = [more for known in found for more in _holding(condition, known, record)]
    return [(dict(known), given) for known in {tuple(sorted(known.items())): None for known in found}]


def _kinds(source: Source) -> tuple[type, ...]:
    """Return the kinds of values in which a source sees fields: records, or those that are fields by themselves."""
    paths = [condition.path for condition in source.conditions if not isinstance(condition, CompareSlot)]
    if isinstance(source.given, OneField):
        paths.append(source.given.path)
    elif source.given is not None:
        paths += [path for _, path in source.given.fields]
    return (str, bool, Decimal, _Vast) if any(not path.names for path in paths) else (dict,)


def parse(text: str) -> Any:
    """Return the value of a JSON text, with decimals for its numbers."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)


def _number(text: str) -> Decimal | _Vast:
    mantissa, _, exponent = text.lower().partition("e")
    if not Decimal(mantissa):
        return Decimal(0)
    return _Vast(text) if len(exponent.lstrip("+-0")) > 9 else Decimal(text)


def _refuse(name: str) -> object:
    raise ValueError(name)


def _given(source: Source, record: object, value: bytes) -> bytes | None:
    if source.given is None:
        return value
    if isinstance(source.given, OneField):
        fields = _field(record, source.given.path)
        if source.operator is Operator.COUNT:
            # It counts what is there, also what has no text.
            return b"" if fields and fields[0] is not None else None
        text = _text(fields[0]) if fields else None
        is_number = bool(fields) and isinstance(fields[0], Decimal)
        is_compared = source.operator in (Operator.SUM, Operator.AVG, Operator.MIN, Operator.MAX)
        return None if is_number and is_compared and text != _plain_of_64(fields[0]) else text
    chosen = {name: _field(record, path) for name, path in source.given.fields}
    try:
        return _print({name: fields[0] for name, fields in chosen.items() if fields})
    except TypeError:
        return None


def unseen(source: Source) -> bytes:
    """Return what a source gives where it has no record: nulls."""
    assert isinstance(source.given, SomeFields)
    return _print({name: None for name, _ in source.given.fields})


def composed(objects: list[bytes]) -> bytes:
    """Return the object with the fields of some."""
    return _print({name: member for one in objects for name, member in parse(one.decode()).items()})


def _holding(condition: Condition, slots: dict[str, bytes], record: object) -> list[dict[str, bytes]]:
    """Return the slots with those that a condition binds, once for each way in which it holds."""
    match condition:
        case CompareSlot(name, comparator, literal):
            return [slots] if _holds(slots[name], comparator, parse(literal).encode()) else []
        case Exists(path):
            return [slots] if _field(record, path) else []
        case Compare(path, comparator, literal):
            wanted = parse(literal)
            alike = [field for field in _field(record, path) if type(field) is type(wanted)]
            return [slots] if any(_holds(field, comparator, wanted) for field in alike) else []
        case Bind(path, slot, is_each):
            fields = _field(record, path)
            if is_each:
                fields = fields[0] if fields and isinstance(fields[0], list) else []
            forms = [form for form in (form(field, slot) for field in fields) if form is not None]
            return [{**slots, slot.name: form} for form in forms if slots.get(slot.name, form) == form]
        case _:
            assert_never(condition)


def _field(record: object, path: Path) -> list[Any]:
    """Return the field at a path, the value itself for a path without names; nothing if it is missing."""
    for name in path.names:
        if not isinstance(record, dict) or name not in record:
            return []
        record = record[name]
    return [record]


def _holds(value: Any, comparator: Comparator, wanted: Any) -> bool:
    """Compare two numbers, two strings, or two others of one type."""
    is_less, is_same = comparator in _LESS and value < wanted, value == wanted
    is_greater = comparator in _GREATER and value > wanted
    if comparator in (Comparator.EQUAL, Comparator.AT_MOST, Comparator.AT_LEAST) and is_same:
        return True
    return bool(is_less or is_greater or (comparator is Comparator.NOT_EQUAL and not is_same))


def _text(field: object) -> bytes | None:
    if field is None or isinstance(field, _Vast):
        return None
    if isinstance(field, Decimal):
        return _plain_of_64(field) or _shortest(field)
    try:
        return field.encode() if isinstance(field, str) else _print(field)
    except (UnicodeEncodeError, TypeError):
        return None


def _print(value: object) -> bytes:
    """Return compact JSON.

    Raises:
        TypeError: It has no UTF-8.
    """
    if isinstance(value, dict):
        return b"{%b}" % b",".join(orjson.dumps(name) + b":" + _print(member) for name, member in value.items())
    if isinstance(value, list):
        return b"[%b]" % b",".join(map(_print, value))
    if isinstance(value, Decimal):
        return _shortest(value)
    return value.text.encode() if isinstance(value, _Vast) else orjson.dumps(value)


def _plain(number: Decimal) -> str | None:
    """Return a number without an exponent, None if it is very long."""
    if not number:
        return "0"
    if abs(number.adjusted()) > 5000:
        return None
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plain_of_64(number: Decimal) -> bytes | None:
    plain = _plain(number)
    return None if plain is None or len(plain) > 64 else plain.encode()


def _shortest(number: Decimal) -> bytes:
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    sign, exponent = "-" if number < 0 else "", number.adjusted()
    plain = _plain(number)
    scientific = f"{sign}{digits[:1]}{'.' if digits[1:] else ''}{digits[1:]}e{exponent}"
    if plain is None:
        return scientific.encode()
    if "." in plain:
        return (scientific if exponent < -5 else plain).encode()
    return min(plain, plain if abs(number) <= 2**64 else scientific, key=len).encode()


def form(field: object, slot: Slot) -> bytes | None:
    """Return a field, as `parse` has it, as a slot has it; None if it has no form for the slot."""
    if slot.form is not None:
        return _number_form(field, slot.form) if isinstance(field, Decimal) else None
    if isinstance(field, Decimal) and slot.width is not None:
        digits = _plain(field) or ""
        return digits.zfill(slot.width).encode() if digits.isdigit() and len(digits) <= slot.width else None
    if isinstance(field, bool):
        text = b"true" if field else b"false"
    elif isinstance(field, str) and not any("\ud800" <= character <= "\udfff" for character in field):
        text = field.encode()
    elif isinstance(field, Decimal):
        text = _shortest(field)
    else:
        return None
    if slot.width is not None:
        return text if len(text) == slot.width else None
    return text if 1 <= len(text) <= 4096 and b"|" not in text else None


def _number_form(number: Decimal, form: NumberForm) -> bytes | None:
    if form is NumberForm.I64:
        is_fit = -(2**63) <= number < 2**63 and number == int(number)
        return b"%016x" % (int(number) + 2**63) if is_fit else None
    double = float(number)
    if abs(double) == float("inf") or number not in (Decimal(double), Decimal(repr(double))):
        return None
    bits = int.from_bytes(struct.pack(">d", double + 0.0), "big")
    return b"%016x" % (2**64 - 1 - bits if bits >= 2**63 else bits + 2**63)
