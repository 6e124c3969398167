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
from typing import Final, NamedTuple, cast

from orjson import JSONDecodeError, loads

from pequod.language.forms import ABSENT, FormOf, Misfit, getter, slot_form
from pequod.language.patterns import Builder, compile_builder, compile_matcher, compile_template
from pequod.language.record_checks import Record, compile_binds, compile_given, compile_selections, leading_binds
from pequod.language.spec import DELIMITER, Bind, Operator
from pequod.language.views import RecordView

#: The plain rows of one key.
Shown = dict[bytes, bytes]
#: Texts of a field that are remembered while many records are looked at.
_HEADS_MAX: Final = 10_000


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
        "_own_start",
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
        own, plain_parts = source.pattern.parts, view.pattern.parts
        #: Where the only slot of own keys begins, if plain keys have one field's slot before it; else 0.
        self._own_start = 0
        if len(own) == 2 and len(plain_parts) == 4 and (plain_parts[0], plain_parts[3]) == own:
            self._own_start = len(source.pattern.literal_prefix)
        each = next((one for one in source.conditions if isinstance(one, Bind) and one.is_each), None)
        binds = [one for one in source.conditions if isinstance(one, Bind) and not one.is_each]
        names = [*matcher.names, *(one.slot.name for one in binds), *([each.slot.name] if each else [])]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self._checks = compile_selections(source, numbers) + compile_binds(binds, numbers, set(matcher.names))
        #: The outer fields that give slots their values, if these are the first checks, in their order.
        self._binds = leading_binds(source, set(matcher.names))
        self._each = None
        if each is not None:
            is_bound = each.slot.name in names[:-1]
            self._each = _Each(getter(each.path), slot_form(each.slot), numbers[each.slot.name], is_bound)
        self._give = compile_given(source)
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

    def show_all(
        self, keys: Sequence[bytes], values: Sequence[bytes], note: Callable[[Misfit, bytes], None]
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the plain rows of many rows, as `show` does, in one loop (bench row: records, indexed).

        Args:
            keys: Keys of the table, each once, that begin with the bytes before the pattern's first slot.
            values: Their values.
            note: Called with the reason and the key for each row that shows nothing.

        Returns:
            The plain keys in no order, each once, and their values.
        """
        match_key, binds, template, pick = self._match, self._binds, self._template, self._pick
        is_simple = len(binds) == len(self._checks) and self._each is None and not self.has_own_values
        if is_simple and self._own_start:
            return self._show_by_field(keys, values, note)
        shown_keys: list[bytes] = []
        shown_values: list[bytes] = []
        add_key, add_value = shown_keys.append, shown_values.append
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
                    add_key(template % pick(slots))
                    add_value(value)
                    continue
                shown = self._show_rest(slots, value, record)
                if isinstance(shown, Misfit):
                    note(shown, key)
                else:
                    shown_keys += shown
                    shown_values += shown.values()
        return shown_keys, shown_values

    def _show_by_field(
        self, keys: Sequence[bytes], values: Sequence[bytes], note: Callable[[Misfit, bytes], None]
    ) -> tuple[list[bytes], list[bytes]]:
        """Do the same for one field in front of own keys with one slot, the most frequent, in two thirds of the time.

        A plain key is the text of the field and the end of the own key: `article|bob|` and `7`.
        """
        ((name, form),), start = self._binds, self._own_start
        (own,) = self.view.source.pattern.slots()
        table, width = self.view.source.pattern.literal_prefix, own.width
        heads: dict[str, bytes] = {}
        shown_keys: list[bytes] = []
        shown_values: list[bytes] = []
        add_key, add_value = shown_keys.append, shown_values.append
        for key, value in zip(keys, values, strict=True):
            bound = key[start:]
            if not (len(bound) == width or (width is None and bound and DELIMITER not in bound)):
                continue
            try:
                record = loads(value)
            except JSONDecodeError:
                record = None
            if record.__class__ is not dict:
                note(Misfit.NO_OBJECT, key)
                continue
            field = record.get(name, ABSENT)
            head = heads.get(field) if field.__class__ is str else None
            if head is None:
                text = form(field)
                if isinstance(text, Misfit):
                    note(text, key)
                    continue
                head = b"%b%b|" % (table, text)
                if field.__class__ is str and len(heads) < _HEADS_MAX:
                    heads[field] = head
            add_key(head + bound)
            add_value(value)
        return shown_keys, shown_values

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
