"""Checks of records: what compares, selects and binds, compiled into functions, and what gives a source's values."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, cast

from pequod.language.forms import (
    ABSENT,
    FormOf,
    Misfit,
    field_text,
    getter,
    json_text,
    outer_name,
    plain_field_text,
    slot_form,
)
from pequod.language.numerals import FLOAT_INTEGER_MAX, Number, exact
from pequod.language.record_rules import read_literal
from pequod.language.spec import (
    Bind,
    Comparator,
    Compare,
    CompareSlot,
    Exists,
    Given,
    OneField,
    Operator,
    Path,
    SomeFields,
    Source,
)

#: What a value is in JSON; or, for a source that looks at values themselves, the value as the field `OWN_FIELD`.
Record = dict[str, object]
#: (record, values of slots so far) -> why the record does not match, or None. A check that binds a slot appends it.
Check = Callable[[Record, list[bytes]], Misfit | None]
#: (value, record) -> what the source gives, or why it gives nothing.
Give = Callable[[bytes, Record], bytes | Misfit]

#: They know the numbers of the language, which are plain decimals.
_OF_NUMBERS: Final = (Operator.SUM, Operator.AVG, Operator.MIN, Operator.MAX)
_COMPARE: Final[dict[Comparator, Callable[[Any, Any], bool]]] = {
    Comparator.EQUAL: eq,
    Comparator.NOT_EQUAL: ne,
    Comparator.LESS: lt,
    Comparator.AT_MOST: le,
    Comparator.GREATER: gt,
    Comparator.AT_LEAST: ge,
}


def compile_selections(source: Source, numbers: dict[str, int]) -> list[Check]:
    """Compile the conditions that select, those of the key first."""
    of_keys: list[Check] = []
    of_fields: list[Check] = []
    for condition in source.conditions:
        match condition:
            case CompareSlot(slot, comparator, literal):
                of_keys.append(_compare_slot(numbers[slot], comparator, literal))
            case Compare(path, comparator, literal):
                of_fields.append(_compare(path, comparator, literal))
            case Exists(path):
                of_fields.append(_exists(path))
            case _:
                # It binds, which comes later.
                continue
    return of_keys + of_fields


def _compare_slot(number: int, comparator: Comparator, literal: str) -> Check:
    compare, wanted = _COMPARE[comparator], cast("str", read_literal(literal)).encode()
    return lambda _record, slots: None if compare(slots[number], wanted) else Misfit.NOT_SELECTED


def _compare(path: Path, comparator: Comparator, literal: str) -> Check:
    get, compare, wanted = getter(path), _COMPARE[comparator], read_literal(literal)
    if isinstance(wanted, int | float | Decimal) and not isinstance(wanted, bool):
        return _compare_number(get, compare, wanted)
    kind = wanted.__class__

    def check(record: Record, _slots: list[bytes]) -> Misfit | None:
        value = get(record)
        if value.__class__ is not kind:
            return Misfit.MISSING if value is ABSENT else Misfit.OTHER_TYPE
        return None if compare(value, wanted) else Misfit.NOT_SELECTED

    return check


def _compare_number(get: Callable[[Record], object], compare: Callable[[Any, Any], bool], wanted: Number) -> Check:
    """Compile a comparison with a number, by the decimals that numbers stand for.

    Floats and integers are in the order of these if one of the two is an integer that is a float, too.
    """
    decimal = exact(wanted)
    is_small = wanted.__class__ is int and -FLOAT_INTEGER_MAX <= wanted <= FLOAT_INTEGER_MAX

    def check(record: Record, _slots: list[bytes]) -> Misfit | None:
        value: Any = get(record)
        if value.__class__ is int or (is_small and value.__class__ is float):
            holds = compare(value, wanted if is_small else decimal)
        elif value.__class__ is float or value.__class__ is Decimal:
            holds = compare(exact(value), decimal)
        else:
            return Misfit.MISSING if value is ABSENT else Misfit.OTHER_TYPE
        return None if holds else Misfit.NOT_SELECTED

    return check


def _exists(path: Path) -> Check:
    get = getter(path)
    return lambda record, _slots: Misfit.MISSING if get(record) is ABSENT else None


def compile_binds(binds: list[Bind], numbers: dict[str, int], bound: set[str]) -> list[Check]:
    """Compile the conditions that give slots their values; ``bound`` are the slots that have one before."""
    checks: list[Check] = []
    for bind in binds:
        name = bind.slot.name
        checks.append(_bind(bind, numbers[name] if name in bound else None))
        bound.add(name)
    return checks


def leading_binds(source: Source, bound: set[str]) -> list[tuple[str, FormOf]]:
    """Return the names and forms of the outer fields that come first, if all conditions bind."""
    binds = [condition for condition in source.conditions if isinstance(condition, Bind)]
    if len(binds) < len(source.conditions):
        return []
    leading = []
    for bind in binds:
        if bind.is_each:
            # Its elements come last.
            continue
        name = outer_name(bind.path)
        if name is None or bind.slot.name in bound:
            break
        bound.add(bind.slot.name)
        leading.append((name, slot_form(bind.slot)))
    return leading


def _bind(bind: Bind, number: int | None) -> Check:
    """Compile the check that binds a slot; if the slot has a number, it is bound before, and must be equal."""
    get, form = getter(bind.path), slot_form(bind.slot)
    name = outer_name(bind.path)
    if number is None and name is not None:
        return _bind_first(name, form)

    def check(record: Record, slots: list[bytes]) -> Misfit | None:
        text = form(get(record))
        if isinstance(text, Misfit):
            return text
        if number is None:
            slots.append(text)
        elif slots[number] != text:
            return Misfit.NOT_SELECTED
        return None

    return check


def _bind_first(name: str, form: FormOf) -> Check:
    """Compile the same for an outer field and a slot that is not bound before, which are the most frequent."""

    def check(record: Record, slots: list[bytes]) -> Misfit | None:
        text = form(record.get(name, ABSENT))
        if text.__class__ is bytes:
            slots.append(text)
            return None
        return text  # type: ignore[return-value]

    return check


def compile_given(source: Source) -> Give:
    """Compile what a source gives for a value."""
    given: Given | None = source.given
    if given is None and (source.operator is Operator.COUNT or not source.operator.gives_value):
        return lambda _value, _record: b""
    if given is None:
        return lambda value, _record: value
    if isinstance(given, OneField):
        return _compile_field(given.path, source.operator)
    return _compile_object(given)


def _compile_object(given: SomeFields) -> Give:
    """Compile the object of some fields.

    A field of the record itself takes no call of its own (bench row: put, join over fields of records).
    """
    fields = [(name, outer_name(path), getter(path)) for name, path in given.fields]

    def give(_value: bytes, record: Record) -> bytes | Misfit:
        found = {}
        for name, outer, get in fields:
            field = get(record) if outer is None else record.get(outer, ABSENT)
            if field is not ABSENT:
                found[name] = field
        return json_text(found)

    return give


def _compile_field(path: Path, operator: Operator) -> Give:
    get = getter(path)
    if operator in _OF_NUMBERS:
        return lambda _value, record: plain_field_text(get(record))
    if operator is not Operator.COUNT:
        return lambda _value, record: field_text(get(record))

    def count(_value: bytes, record: Record) -> bytes | Misfit:
        field = get(record)
        return Misfit.MISSING if field is ABSENT else Misfit.NULL if field is None else b""

    return count
