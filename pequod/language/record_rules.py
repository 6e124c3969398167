"""Which uses of record fields are refused: conditions after ``with``, and what a source gives after ``as``."""

from __future__ import annotations

from typing import Final

from pequod.language.errors import JoinError
from pequod.language.numerals import Vast
from pequod.language.parsing import read_json
from pequod.language.spec import (
    Bind,
    Comparator,
    Compare,
    CompareSlot,
    Condition,
    JoinSpec,
    Operator,
    SomeFields,
    Source,
)

#: More conditions or fields would make each put of a record slow.
PARTS_MAX: Final = 32
_SAME: Final = (Comparator.EQUAL, Comparator.NOT_EQUAL)
_VALUES: Final = 'a literal is a number, a text in double quotes, true, false or null: `stock > 0`, `status = "open"`'


def check_records(source: Source) -> None:
    """Refuse conditions that can never hold or have no meaning, and a wrong choice of fields.

    Raises:
        JoinError: With the reason, a hint, and the span.
    """
    if len(source.conditions) > PARTS_MAX:
        raise JoinError(
            f"the source {source.pattern} has {len(source.conditions)} conditions; {PARTS_MAX} are the most",
            hint="compute a part of it in another join and read its output",
            span=source.span,
        )
    keyed = {slot.name for slot in source.pattern.slots()}
    for condition in source.conditions:
        _check_condition(condition, keyed, source)
    arrays = [condition for condition in source.conditions if isinstance(condition, Bind) and condition.is_each]
    if len(arrays) > 1:
        raise JoinError(
            f"the source {source.pattern} goes into two arrays: {arrays[0]}, and {arrays[1]}",
            hint="a source goes into one array, and gives a row for each of its elements",
            span=arrays[1].span,
        )
    _check_given(source)
    _check_whole(source)


def _check_condition(condition: Condition, keyed: set[str], source: Source) -> None:
    if isinstance(condition, CompareSlot):
        if condition.slot not in keyed:
            raise JoinError(
                f"<{condition.slot}> is no slot of the keys {source.pattern}",
                hint="before a comparison stands a field, as in `stock > 0`, or a slot of this source's keys",
                span=condition.span,
            )
        if not isinstance(read_literal(condition.literal), str):
            raise JoinError(
                f"the slot <{condition.slot}> cannot be compared with {condition.literal}",
                hint=f'slots are text: write `<{condition.slot}> {condition.comparator} "0100"`',
                span=condition.span,
            )
        return
    if isinstance(condition, Bind) and condition.is_each and not condition.path.names:
        raise JoinError(
            "`.` is a number, a string, true or false, and has no elements",
            hint="write the name of the field that is an array: `tags[] = <tag>`",
            span=condition.span,
        )
    if isinstance(condition, Compare):
        value = read_literal(condition.literal)
        if isinstance(value, dict | list | NoLiteral):
            raise JoinError(f"{condition.literal} is no literal", hint=_VALUES, span=condition.span)
        if (value is None or isinstance(value, bool)) and condition.comparator not in _SAME:
            raise JoinError(
                f"{condition.literal} is neither less nor greater than anything",
                hint="true, false and null are compared with `=` and `!=` alone",
                span=condition.span,
            )


def _check_whole(source: Source) -> None:
    """Refuse a source that looks at values themselves and at fields in them: no value is both."""
    field = next((path for path in source.paths() if path.names), None)
    if field is not None and source.is_of_whole_values:
        raise JoinError(
            f"the source {source.pattern} looks at `.`, a value that is no record, and at `{field}`, a field of one",
            hint="a value is one or the other: write two joins, or leave one out",
            span=source.span,
        )


def _check_given(source: Source) -> None:
    given = source.given
    if given is None:
        return
    if source.operator is Operator.UNLESS:
        raise JoinError(
            f"the source {source.operator} {source.pattern} gives no value, so that `as {given}` has no meaning",
            hint="write `as` after a source whose rows are there",
            span=given.span,
        )
    if not isinstance(given, SomeFields):
        if not source.operator.gives_value:
            raise JoinError(
                f"the source {source.operator} {source.pattern} gives fields of the value, not the value itself",
                hint=f"name them in braces: `as {{{given}}}`" if given.path.names else "name it: `as {value: .}`",
                span=given.span,
            )
        return
    if source.operator is not Operator.COPY and source.operator.gives_value:
        raise JoinError(
            f"{source.operator} takes one field, not an object of some",
            hint=f"write, for example, `{source.operator} {source.pattern} as {_first_path(given)}`",
            span=given.span,
        )
    names = [name for name, _ in given.fields]
    if not 1 <= len(names) <= PARTS_MAX:
        raise JoinError(
            f"`as` names {len(names)} fields", hint=f"name 1 to {PARTS_MAX}: `as {{title, votes}}`", span=given.span
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise JoinError(
            f"`as` gives the name {twice!r} to two fields",
            hint=f"give one of them another name: `as {{{twice}, other: path}}`",
            span=given.span,
        )


def never_holding(spec: JoinSpec) -> tuple[str, ...]:
    """Return a warning for each condition of a join that never holds."""
    return tuple(
        f"`{condition}` never holds: a value of another type than the literal does not match, and null equals null. "
        f"Write `{condition.path} exists` for records that have the field"
        for source in spec.sources
        for condition in source.conditions
        if isinstance(condition, Compare)
        and condition.comparator is Comparator.NOT_EQUAL
        and condition.literal == "null"
    )


def _first_path(given: SomeFields) -> str:
    return str(given.fields[0][1]) if given.fields else "amount"


class NoLiteral:
    """The result for a text that is no JSON."""


def read_literal(text: str) -> object:
    """Return the value of a literal's JSON; something that is no JSON value if the text is none."""
    try:
        value = read_json(text.encode())
        if isinstance(value, str):
            # Half of a surrogate pair is no text that a field can equal.
            value.encode()
    except ValueError:
        return NoLiteral()
    return NoLiteral() if isinstance(value, Vast) else value
