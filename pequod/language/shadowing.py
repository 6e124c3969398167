"""Which joins an earlier join hides: of two joins that compute one key, the value of the earlier one is shown.

    karma|<author> = count vote|<author>|<id>          installed first
    karma|<writer> = sum vote|<writer>|<id>            hidden: each of its keys is a key of the first one, too

Whether one join computes all keys of another is decided by names alone: the sources of the earlier one are found, one
by one, among those of the later one; an earlier one with `unless` or `keep` is taken to hide nothing. So `hides` may
say no where a closer look would say yes, and never the reverse.
"""

from __future__ import annotations

from dataclasses import replace

from pequod.language.spec import (
    DELIMITER,
    Bind,
    CompareSlot,
    Condition,
    JoinSpec,
    Operator,
    Pattern,
    Slot,
    Snapshot,
    Source,
)

#: Slots of the earlier join -> slots of the later one.
_Names = dict[str, str]


def is_alike(earlier: JoinSpec, later: JoinSpec) -> bool:
    """Return whether two joins have one output pattern, whatever its slots are called, and values of one table."""
    return (
        _named(earlier.output, later.output, {}) is not None
        and earlier.value_source.pattern.literal_prefix.partition(DELIMITER)[0]
        == later.value_source.pattern.literal_prefix.partition(DELIMITER)[0]
    )


def hides(earlier: JoinSpec, later: JoinSpec) -> bool:
    """Return whether every key that ``later`` computes is a key of ``earlier`` too; False if that is not seen.

    Cost:
        O(sources of both): each source of ``earlier`` is compared with each of ``later`` once.
    """
    names = _named(earlier.output, later.output, {})
    if names is None or isinstance(earlier.maintenance, Snapshot) or earlier.keep is not None:
        # Until a snapshot is taken again, the later join shows the rows that are newer; and those that are not kept.
        return False
    there = [other for other in later.sources if other.operator.binds_slots]
    for source in earlier.sources:
        if source.operator is Operator.UNLESS:
            return False
        if source.operator is Operator.OPTIONAL:
            continue
        found = (_found_in(source, other, names) for other in there)
        names = next((one for one in found if one is not None), None)
        if names is None:
            return False
    return True


def _found_in(source: Source, other: Source, names: _Names) -> _Names | None:
    """Return the names of slots by which ``source`` has a row wherever ``other`` has one; None: there are none."""
    # Sums and means have no row for values that are no numbers; minima and maxima are of any bytes.
    takes_numbers = source.operator.takes_numbers
    if takes_numbers and not other.operator.takes_numbers:
        return None
    if (takes_numbers or source.given is not None) and source.given != other.given:
        return None
    extended = _named(source.pattern, other.pattern, names)
    if extended is None:
        return None
    binds = {(one.path, one.is_each): one.slot for one in other.conditions if isinstance(one, Bind)}
    for condition in source.conditions:
        if isinstance(condition, Bind) and (slot := binds.get((condition.path, condition.is_each))) is not None:
            extended.setdefault(condition.slot.name, slot.name)
    if all(_renamed(condition, extended) in other.conditions for condition in source.conditions):
        return extended
    return None


def _renamed(condition: Condition, names: _Names) -> Condition:
    match condition:
        case Bind():
            return replace(condition, slot=replace(condition.slot, name=names.get(condition.slot.name, "")))
        case CompareSlot():
            return replace(condition, slot=names.get(condition.slot, ""))
        case _:
            return condition


def _named(pattern: Pattern, other: Pattern, names: _Names) -> _Names | None:
    """Return ``names`` and those that make ``pattern`` the pattern ``other``; None: they differ in more."""
    if len(pattern.parts) != len(other.parts):
        return None
    extended = dict(names)
    for part, behind in zip(pattern.parts, other.parts, strict=True):
        if isinstance(part, Slot) and isinstance(behind, Slot):
            is_same = (part.width, part.form) == (behind.width, behind.form)
            if not is_same or extended.setdefault(part.name, behind.name) != behind.name:
                return None
        elif part != behind:
            return None
    return extended
