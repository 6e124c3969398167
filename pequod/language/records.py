"""Records: what a source sees in the values of its keys.

    copy post|<id> with tags[] = <tag>, stock > 0 as {title}

    post|7  {"title": "Hi", "tags": ["red", "new", "red"], "stock": 3}    ->  post|red|7  {"title":"Hi"}
                                                                              post|new|7  {"title":"Hi"}
    post|8  {"title": "Ho", "tags": ["red"]}                              ->  nothing: it has no stock

A value that matches gives rows whose keys have all slots of the source: those of its key and those of its fields. A
`Lens` shows these rows, the *plain* ones. So a join over records is a join over the plain keys of its lenses, and the
other parts of the engine know only this plain join.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple, cast

from orjson import JSONDecodeError, loads

from pequod.language.forms import ABSENT, FormOf, Misfit, field_text, getter, json_text, slot_form
from pequod.language.patterns import Builder, compile_builder, compile_matcher, compile_template
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
    Source,
)
from pequod.language.views import RecordView

Record = dict[str, object]
#: The plain rows of one key.
Shown = dict[bytes, bytes]
#: (record, values of slots so far) -> why the record does not match, or None. A check that binds a slot appends it.
Check = Callable[[Record, list[bytes]], Misfit | None]
#: (value, record) -> what the source gives, or why it gives nothing.
Give = Callable[[bytes, Record], bytes | Misfit]

_COMPARE: Final[dict[Comparator, Callable[[Any, Any], bool]]] = {
    Comparator.EQUAL: eq,
    Comparator.NOT_EQUAL: ne,
    Comparator.LESS: lt,
    Comparator.AT_MOST: le,
    Comparator.GREATER: gt,
    Comparator.AT_LEAST: ge,
}


def parse_record(value: bytes) -> Record | None:
    """Return the object that a value is in JSON, None if it is something else."""
    try:
        record = loads(value)
    except JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


class _Each(NamedTuple):
    """The array of which each element gives a row."""

    get: Callable[[Record], object]
    form: FormOf
    #: The number of the slot, and whether it has a value before.
    number: int
    is_bound: bool


class Lens:
    """Shows the plain rows of a view.

    Invariants:
        1. A plain key has all slots of the source, so no two rows of the table give the same one.
    """

    __slots__ = (
        "_binds",
        "_build",
        "_checks",
        "_each",
        "_give",
        "_match",
        "_match_plain",
        "_own_key",
        "_pick",
        "_template",
        "begins_with_own",
        "has_own_values",
        "is_own",
        "view",
    )

    def __init__(self, view: RecordView) -> None:
        source = view.source
        self.view = view
        matcher = compile_matcher(source.pattern)
        self._match = matcher.match
        each = next((one for one in source.conditions if isinstance(one, Bind) and one.is_each), None)
        binds = [one for one in source.conditions if isinstance(one, Bind) and not one.is_each]
        names = [*matcher.names, *(one.slot.name for one in binds), *([each.slot.name] if each else [])]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self._checks = _compile_selections(source, numbers) + _compile_binds(binds, numbers, set(matcher.names))
        #: The outer fields that give slots their values, if these are the first checks, in their order.
        self._binds = _leading_binds(source, set(matcher.names))
        self._each = None
        if each is not None:
            is_bound = each.slot.name in names[:-1]
            self._each = _Each(getter(each.path), slot_form(each.slot), numbers[each.slot.name], is_bound)
        self._give = _compile_given(source)
        #: Whether the rows' values are not those of the table.
        self.has_own_values = source.given is not None or source.operator in (Operator.CHECK, Operator.COUNT)
        self._build: Builder = compile_builder(view.pattern.parts, numbers)
        self._template, self._pick = compile_template(view.pattern.parts, numbers)
        #: Whether plain keys are the table's own.
        self.is_own = view.pattern == source.pattern
        plain = compile_matcher(view.pattern)
        self._match_plain = plain.match
        groups = {name: number for number, name in enumerate(plain.names)}
        self._own_key = compile_builder(source.pattern.parts, groups)
        #: Match the own key at the beginning of a plain key or of a part of one.
        self.begins_with_own = re.compile(matcher.expression + rb"(?=\||\Z)", re.DOTALL).match

    def own_key(self, plain_key: bytes) -> bytes | None:
        """Return the key of the table that would give a plain key; None if it is no plain key."""
        if self.is_own:
            return plain_key
        match = self._match_plain(plain_key)
        return None if match is None else self._own_key(match.groups())

    def show(self, key: bytes, value: bytes, parse: Callable[[bytes], Record | None]) -> Shown | Misfit:
        """Return the plain rows of a row of the table, or why there are none."""
        match = self._match(key)
        if match is None:
            return Misfit.NOT_SELECTED
        record = parse(value)
        if record is None:
            return Misfit.NO_OBJECT
        slots = list(match.groups())
        for check in self._checks:
            misfit = check(record, slots)
            if misfit is not None:
                return misfit
        given = self._give(value, record)
        if isinstance(given, Misfit):
            return given
        if self._each is None:
            return {key if self.is_own else self._build(slots): given}
        return self._show_each(self._each, slots, given, record)

    def show_all(self, keys: Sequence[bytes], values: Sequence[bytes], note: Callable[[Misfit, bytes], None]) -> Shown:
        """Return the plain rows of many rows, as `show` does, in one loop (bench row: records, indexed).

        Args:
            keys: The keys of the table.
            values: Their values.
            note: Called with the reason and the key for each row that shows nothing.
        """
        match_key, binds, template, pick = self._match, self._binds, self._template, self._pick
        is_simple = len(binds) == len(self._checks) and self._each is None and not self.has_own_values
        found: Shown = {}
        for key, value in zip(keys, values, strict=True):
            match = match_key(key)
            if match is None:
                continue
            try:
                record = loads(value)
            except JSONDecodeError:
                record = None
            if record.__class__ is not dict:
                note(Misfit.NO_OBJECT, key)
                continue
            slots = [*match.groups()]
            for name, form in binds:
                text = form(record.get(name, ABSENT))
                if type(text) is not bytes:
                    note(cast("Misfit", text), key)
                    break
                slots.append(text)
            else:
                if is_simple:
                    found[template % pick(slots)] = value
                    continue
                shown = self._show_rest(slots, value, record)
                if isinstance(shown, Misfit):
                    note(shown, key)
                else:
                    found.update(shown)
        return found

    def _show_rest(self, slots: list[bytes], value: bytes, record: Record) -> Shown | Misfit:
        """Return the plain rows of a record whose leading fields have given their slots."""
        for check in self._checks[len(self._binds) :]:
            misfit = check(record, slots)
            if misfit is not None:
                return misfit
        given = self._give(value, record)
        if isinstance(given, Misfit):
            return given
        return {self._build(slots): given} if self._each is None else self._show_each(self._each, slots, given, record)

    def _show_each(self, each: _Each, slots: list[bytes], given: bytes, record: Record) -> Shown | Misfit:
        elements = each.get(record)
        if not isinstance(elements, list):
            return Misfit.MISSING if elements is ABSENT else Misfit.NULL if elements is None else Misfit.NO_ARRAY
        misfit = Misfit.NOT_SELECTED
        shown: Shown = {}
        if not each.is_bound:
            slots.append(b"")
        known = slots[each.number]
        for element in elements:
            text = each.form(element)
            if isinstance(text, Misfit):
                misfit = text
            elif not each.is_bound or text == known:
                slots[each.number] = text
                shown[self._build(slots)] = given
        return shown or misfit


def _compile_selections(source: Source, numbers: dict[str, int]) -> list[Check]:
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
    kind = _kind_of(wanted)

    def check(record: Record, _slots: list[bytes]) -> Misfit | None:
        value = get(record)
        if _kind_of(value) is not kind:
            return Misfit.MISSING if value is ABSENT else Misfit.OTHER_TYPE
        return None if compare(value, wanted) else Misfit.NOT_SELECTED

    return check


def _kind_of(value: object) -> type:
    return float if value.__class__ is int else value.__class__


def _exists(path: Path) -> Check:
    get = getter(path)
    return lambda record, _slots: Misfit.MISSING if get(record) is ABSENT else None


def _compile_binds(binds: list[Bind], numbers: dict[str, int], bound: set[str]) -> list[Check]:
    checks: list[Check] = []
    for bind in binds:
        name = bind.slot.name
        checks.append(_bind(bind, numbers[name] if name in bound else None))
        bound.add(name)
    return checks


def _leading_binds(source: Source, bound: set[str]) -> list[tuple[str, FormOf]]:
    if not all(isinstance(condition, Bind) for condition in source.conditions):
        return []
    leading = []
    for bind in source.conditions:
        if not isinstance(bind, Bind) or bind.is_each or len(bind.path.names) > 1 or bind.slot.name in bound:
            break
        bound.add(bind.slot.name)
        leading.append((bind.path.names[0], slot_form(bind.slot)))
    return leading


def _bind(bind: Bind, number: int | None) -> Check:
    """Compile the check that binds a slot; if the slot has a number, it is bound before, and must be equal."""
    get, form = getter(bind.path), slot_form(bind.slot)
    if number is None and len(bind.path.names) == 1:
        return _bind_first(bind.path.names[0], form)

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


def _compile_given(source: Source) -> Give:
    given: Given | None = source.given
    if source.operator is Operator.CHECK or (source.operator is Operator.COUNT and given is None):
        return lambda _value, _record: b""
    if given is None:
        return lambda value, _record: value
    if isinstance(given, OneField):
        return _compile_field(given.path, is_counted=source.operator is Operator.COUNT)
    fields = [(name, getter(path)) for name, path in given.fields]

    def give(_value: bytes, record: Record) -> bytes | Misfit:
        found = {}
        for name, get in fields:
            field = get(record)
            if field is not ABSENT:
                found[name] = field
        return json_text(found)

    return give


def _compile_field(path: Path, *, is_counted: bool) -> Give:
    get = getter(path)
    if not is_counted:
        return lambda _value, record: field_text(get(record))

    def count(_value: bytes, record: Record) -> bytes | Misfit:
        field = get(record)
        return Misfit.MISSING if field is ABSENT else Misfit.NULL if field is None else b""

    return count
