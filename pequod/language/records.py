"""Records: what a source sees in the values of its keys.

    copy post|<id> with tags[] = <tag>, stock > 0 as {title}

    post|7  {"title": "Hi", "tags": ["red", "new", "red"], "stock": 3}    ->  post|red|7  {"title":"Hi"}
                                                                              post|new|7  {"title":"Hi"}
    post|8  {"title": "Ho", "tags": ["red"]}                              ->  nothing: it has no stock

A value that matches gives rows whose keys have all slots of the source: those of its key and those of its fields. A
`Lens` shows these rows, the *plain* ones. So a join over records is a join over the plain keys of its lenses, and the
other parts of the engine know only this plain join.

    copy karma|<author> with . = <points>      karma|bob  12    ->  karma|12|bob  12

A source that looks at values themselves sees each as a record with one field; what is no JSON scalar has none.

    check? l|<id> as {name}     l|7  {"name": "Ann"}    ->  l|7|{"name":"Ann"}
                                l|8  absent             ->  l|8|{"name":null}

The object that a check gives is the last slot of its plain key. A key of a source that may be missing has a plain row
always (`Lens.absent`): to the rest of the engine it is a check that never fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, NamedTuple, Protocol, cast

import orjson

from pequod.language.composing import hidden, nulls
from pequod.language.forms import ABSENT, OWN_FIELD, TEXT_BYTES_MAX, FormOf, Misfit, getter, slot_form
from pequod.language.numerals import Vast
from pequod.language.parsing import read_json
from pequod.language.patterns import Builder, compile_builder, compile_matcher, cuts, make_template
from pequod.language.record_checks import Give, Record, compile_binds, compile_given, compile_selections, leading_binds
from pequod.language.spec import Bind, NumberForm, OneField, Operator, Slot, Source
from pequod.language.views import RecordView
from pequod.native import core

#: The plain rows of one key.
Shown = dict[bytes, bytes]
#: The value of some bytes in JSON, None if they are none.
Parse = Callable[[bytes], object]
#: What `.` names.
_SCALARS: Final = frozenset({str, int, float, Decimal, Vast, bool})


class Quick(Protocol):
    """The quick half of a lens, which is native; it leaves to the lens what is not usual, and what shows nothing.

    Usual are texts and integers in slots, and values that are integers themselves.
    """

    def show(self, key: bytes, value: bytes, /) -> tuple[bytes, bytes] | None:
        """Return the plain row of a row of the table, None if it is left to `look`: the value's JSON is not usual."""

    def look(self, key: bytes, value: bytes, parse: Parse, /) -> tuple[bytes, Record] | None:
        """Return the plain key and the record of a row of the table, None if it is left to the lens.

        Of a source of whole values, there is None in the place of the record.
        """

    def look_all(
        self, keys: list[bytes], values: list[bytes], parse: Callable[[bytes], object], give: Give | None, /
    ) -> tuple[list[bytes], list[bytes], list[int]]:
        """Return the plain keys of rows of the table, their values, and the numbers of the rows that are left.

        Args:
            parse: Raises ValueError if a value is no JSON. Values with numbers of which a double loses digits are left.
            give: What gives the values; None: they are the table's own.
        """


def parse_value(value: bytes) -> object:
    """Return the value of some bytes in JSON, None if they are none; null shows as little."""
    try:
        return read_json(value)
    except ValueError:
        return None


def _shows_values(operator: Operator) -> bool:
    return operator.gives_value and operator is not Operator.COUNT


class Each(NamedTuple):
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
        "_match_plain",
        "_nulls",
        "_own_key",
        "begins_with_own",
        "binds",
        "build",
        "checks",
        "each",
        "give",
        "gives_fields",
        "has_own_values",
        "is_of_whole_values",
        "is_optional",
        "is_own",
        "key_slot_count",
        "match",
        "plain_numbers",
        "quick",
        "template",
        "view",
    )

    def __init__(self, view: RecordView) -> None:
        source = view.source
        self.view = view
        #: Whether it shows values themselves, and not records.
        self.is_of_whole_values = source.is_of_whole_values
        matcher = compile_matcher(source.pattern)
        #: Match a key of the table; its groups are the first slots.
        self.match = matcher.match
        each = next((one for one in source.conditions if isinstance(one, Bind) and one.is_each), None)
        binds = [one for one in source.conditions if isinstance(one, Bind) and not one.is_each]
        names = [*matcher.names, *(one.slot.name for one in binds), *([each.slot.name] if each else [])]
        # The slots of the key come first, then those of fields, that of elements, and that of the object it gives.
        names += [slot.name for slot in view.pattern.slots() if slot.name not in names]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.key_slot_count = len(matcher.names)
        checks = compile_selections(source, numbers) + compile_binds(binds, numbers, set(matcher.names))
        #: The outer fields that give slots their values, if these are the first checks, in their order.
        self.binds = leading_binds(source, set(matcher.names))
        #: The other checks.
        self.checks = checks[len(self.binds) :]
        #: The array of which each element gives a row, if there is one.
        self.each: Each | None = None
        if each is not None:
            is_bound = each.slot.name in {*matcher.names, *(one.slot.name for one in binds)}
            self.each = Each(getter(each.path), slot_form(each.slot), numbers[each.slot.name], is_bound)
        #: Whether what the source gives is the last slot of the plain key, and not a value.
        self.gives_fields = source.gives_fields
        #: Whether a key without a record has a plain row too, one of nulls.
        self.is_optional = source.operator is Operator.OPTIONAL
        self._nulls = hidden(nulls(source)) if self.is_optional else b""
        #: What the source gives for a value and its record, or why it gives nothing.
        self.give = compile_given(source)
        #: Whether the rows' values are not those of the table.
        self.has_own_values = source.given is not None or not _shows_values(source.operator)
        #: Its quick half; None: there is none.
        self.quick = None if self.checks or self.each or self.gives_fields else _compile_quick(view)
        #: Slots -> the plain key.
        self.build: Builder = compile_builder(view.pattern.parts, numbers)
        #: ``template % tuple(slots)`` is the same; the numbers of the slots in their order there.
        self.template, self.plain_numbers = make_template(view.pattern.parts, numbers)
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

    def show(self, key: bytes, value: bytes, parse: Parse) -> Shown | Misfit:
        """Return the plain rows of a row of the table, or why there are none."""
        if self.each is None:
            row = self.show_row(key, value, parse)
            return row if isinstance(row, Misfit) else dict([row])
        bound = self._bind(key, value, parse)
        return bound if isinstance(bound, Misfit) else self.show_rest(*bound, value)

    def show_row(self, key: bytes, value: bytes, parse: Parse) -> tuple[bytes, bytes] | Misfit:
        """Return the plain row of a row of the table, or why there is none (bench row: put, join over records).

        Requires:
            There is no ``each``: a row of the table gives one plain row at most.
        """
        if self.quick is not None:
            row = self.quick.show(key, value)
            if row is not None:
                return row
            seen = self.quick.look(key, value, parse)
            if seen is not None:
                if not self.has_own_values:
                    return seen[0], value
                given = self.give(value, seen[1])
                return cast("Misfit", given) if given.__class__ is not bytes else (seen[0], given)
        bound = self._bind(key, value, parse)
        if bound.__class__ is not tuple:
            return cast("Misfit", bound)
        slots, record = bound
        for check in self.checks:
            misfit = check(record, slots)
            if misfit is not None:
                return misfit
        if self.has_own_values:
            given = self.give(value, record)
            if given.__class__ is not bytes:
                return cast("Misfit", given)
            value = given
        return self._plain_row(slots, value) if self.gives_fields else (self.build(slots), value)

    def absent(self, key: bytes) -> Shown:
        """Return the plain rows of a key of the table that shows no record: none unless the source may be missing."""
        match = self.match(key) if self.is_optional else None
        return {} if match is None else {self.build([*match.groups(), self._nulls]): b""}

    def _plain_row(self, slots: list[bytes], given: bytes) -> tuple[bytes, bytes]:
        return (self.build([*slots, hidden(given)]), b"") if self.gives_fields else (self.build(slots), given)

    def record_of(self, found: object) -> Record | Misfit:
        """Return the record in which the fields of a parsed value are looked up."""
        if self.is_of_whole_values:
            return {OWN_FIELD: found} if found.__class__ in _SCALARS else Misfit.NO_SCALAR
        return cast("Record", found) if found.__class__ is dict else Misfit.NO_OBJECT

    def _bind(self, key: bytes, value: bytes, parse: Parse) -> tuple[list[bytes], Record] | Misfit:
        """Return the values of the slots that the key and ``binds`` give, and the record."""
        match = self.match(key)
        if match is None:
            return Misfit.NOT_SELECTED
        record = self.record_of(parse(value))
        if record.__class__ is not dict:
            return cast("Misfit", record)
        slots = [*match.groups()]
        for name, form in self.binds:
            text = form(record.get(name, ABSENT))
            if text.__class__ is not bytes:
                return cast("Misfit", text)
            slots.append(text)
        return slots, record

    def show_rest(self, slots: list[bytes], record: Record, value: bytes) -> Shown | Misfit:
        """Return the plain rows of a record whose ``binds`` have given their slots."""
        for check in self.checks:
            misfit = check(record, slots)
            if misfit is not None:
                return misfit
        given = self.give(value, record)
        if isinstance(given, Misfit):
            return given
        if self.each is None:
            return dict([self._plain_row(slots, given)])
        return self._show_each(self.each, slots, given, record)

    def _show_each(self, each: Each, slots: list[bytes], given: bytes, record: Record) -> Shown | Misfit:
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
                plain, shown_value = self._plain_row(slots, given)
                shown[plain] = shown_value
        return shown or misfit


def _compile_quick(view: RecordView) -> Quick | None:
    """Return the quick half of the lens of a view whose conditions all bind outer fields."""
    parts, plain = view.source.pattern.parts, view.pattern.parts
    binds = [condition for condition in view.source.conditions if isinstance(condition, Bind)]
    shape = cuts(parts)
    if core is None or shape is None or any(bind.slot.form is NumberForm.F64 for bind in binds):
        return None
    if view.source.is_of_whole_values and view.source.given is not None:
        # It sees no record, of which something could be given.
        return None
    places = {part.name: at for at, part in enumerate(parts) if isinstance(part, Slot)}
    places |= {bind.slot.name: len(parts) + at for at, bind in enumerate(binds)}
    if max(len(parts), len(binds), len(plain)) > core.PARTS_MAX:
        return None
    fields = tuple([(next(iter(bind.path.names), None), bind.slot.width, bind.slot.form is not None) for bind in binds])
    pieces = tuple([part if isinstance(part, bytes) else places[part.name] for part in plain])
    quick: Quick = core.QuickLens(shape, fields, pieces, TEXT_BYTES_MAX, _gives(view.source, core.PARTS_MAX))
    return quick


def _gives(source: Source, fields_max: int) -> tuple[tuple[bytes | str | None, ...], ...] | bytes | bool | None:
    """Return what a plain row has as its value: None: the table's own one; fields, with what begins each in an object.

    False: only `Lens.give` says it.
    """
    if source.given is None:
        return None if _shows_values(source.operator) else b""
    if source.operator is Operator.COUNT or not source.operator.gives_value:
        return False
    given = [(None, source.given.path)] if isinstance(source.given, OneField) else source.given.fields
    is_quick = len({name for name, _ in given}) == len(given) <= fields_max
    if not is_quick or any(len(path.names) not in {1, 2} for _, path in given):
        return False
    return tuple([(None if name is None else orjson.dumps(name) + b":", *path.names) for name, path in given])
