"""Views of records: which plain keys a source with conditions sees, and in which order.

    by_author|<author>|<id> = copy article|<id> with author = <author>
    plain                     copy article|<author>|<id>                    read through an index

    kind|<user>|<kind>|<id> = copy p|<user>|<id> with kind = <kind>
    plain                     copy p|<user>|<id>|<kind>                     the user's own keys come first

    rated|<user>|<id> = copy r|<user>|<id> as {stars} check l|<id> as {name}
    plain                     copy r|<user>|<id> check l|<id>|<1>           an object that it gives is a slot: composing

Plain keys begin with slots that are known when the source is read. If the table's own keys do so, a plain key is the
own key, followed by the slots of fields. Else it is in an order of its own, and an index keeps the rows in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pequod.language.composing import object_slot
from pequod.language.spec import DELIMITER, Bind, CompareSlot, Condition, JoinSpec, Operator, Pattern, Slot, Source


@dataclass(frozen=True, slots=True)
class RecordView:
    """A source with records, and the order of the slots in its plain keys."""

    source: Source
    #: Of the plain keys.
    pattern: Pattern
    #: Whether they are in an order of their own, so that an index keeps the rows.
    is_indexed: bool

    def anonymous(self) -> RecordView:
        """Return the same with numbers as names of slots: views that differ in names alone are equal."""
        names = {slot.name: f"s{number}" for number, slot in enumerate(dict.fromkeys(self.pattern.slots()))}

        def renamed(pattern: Pattern) -> Pattern:
            return Pattern(tuple(_rename(part, names) for part in pattern.parts))

        conditions = tuple(_rename_in(condition, names) for condition in self.source.conditions)
        source = Source(_seeing_alike(self.source), renamed(self.source.pattern), None, conditions, self.source.given)
        return RecordView(source, renamed(self.pattern), self.is_indexed)


def _seeing_alike(source: Source) -> Operator:
    """Return one operator for all that see the same of a record: `check` and `unless` see whether there is a row."""
    if source.operator is Operator.OPTIONAL:
        return source.operator
    if not source.operator.gives_value:
        return Operator.CHECK
    if source.operator is Operator.COUNT:
        return source.operator
    # Of a field, sums and extremes do not see the numbers that take too many bytes.
    return Operator.COPY if source.given is None or source.operator is Operator.COPY else Operator.SUM


def _rename(part: bytes | Slot, names: dict[str, str]) -> bytes | Slot:
    return part if isinstance(part, bytes) else replace(part, name=names[part.name])


def _rename_in(condition: Condition, names: dict[str, str]) -> Condition:
    match condition:
        case Bind():
            return replace(condition, slot=replace(condition.slot, name=names[condition.slot.name]))
        case CompareSlot():
            return replace(condition, slot=names[condition.slot])
        case _:
            return condition


def plain_join(spec: JoinSpec) -> tuple[JoinSpec, list[RecordView | None]]:
    """Return the plain join of a join, and the views of its sources; None for a source without records.

    It is planned for reads that fix the first slot of the output, such as those of one author's articles.
    """
    wanted = list(dict.fromkeys(slot.name for slot in spec.output.slots()))
    known = set(wanted[:1])
    sources: list[Source] = []
    views: list[RecordView | None] = []
    for depth, source in enumerate(spec.sources):
        if source.has_records:
            view = _view(source, known, wanted, [object_slot(depth)] if source.gives_fields else [])
            # What may be missing has a plain row always: one of nulls where there is no record.
            operator = Operator.CHECK if source.operator is Operator.OPTIONAL else source.operator
            sources.append(Source(operator, view.pattern, source.span))
            views.append(view)
        else:
            sources.append(source)
            views.append(None)
        known = known | {slot.name for slot in source.bound()}
    return replace(spec, sources=tuple(sources)), views


def _view(source: Source, known: set[str], wanted: list[str], objects: list[Slot]) -> RecordView:
    slots = list(dict.fromkeys(source.slots()))
    keyed = {slot.name for slot in source.pattern.slots()}
    fields = [slot for slot in slots if slot.name not in keyed]
    first = next(source.pattern.slots(), None)
    is_led = first is None or first.name in known
    if is_led or not known.intersection(slot.name for slot in fields):
        return RecordView(source, _joined(source.pattern.parts, fields + objects), is_indexed=False)
    # Known slots first, then the order of the output, so that bounds of a read narrow the rest.
    order = {name: number for number, name in enumerate(wanted)}
    slots.sort(key=lambda slot: (slot.name not in known, order.get(slot.name, len(order))))
    table = source.pattern.literal_prefix.partition(DELIMITER)[0] + DELIMITER
    return RecordView(source, _joined((table, slots[0]), slots[1:] + objects), is_indexed=True)


def _joined(parts: tuple[bytes | Slot, ...], slots: list[Slot]) -> Pattern:
    """Return parts with slots after them, each after a delimiter."""
    joined = list(parts)
    for slot in slots:
        if isinstance(joined[-1], bytes):
            joined[-1] += DELIMITER
        else:
            joined.append(DELIMITER)
        joined.append(slot)
    return Pattern(tuple(joined))
