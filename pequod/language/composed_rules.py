"""Which joins with fields of several sources are refused."""

from __future__ import annotations

from pequod.language.errors import JoinError
from pequod.language.spec import Bind, JoinSpec, Operator, SomeFields, Source


def check_optional(source: Source) -> None:
    """Refuse a `check?` that gives nothing, or that would give slots values where there is no record.

    Raises:
        JoinError: With the reason, a hint, and the span.
    """
    if source.operator is not Operator.OPTIONAL:
        return
    if source.given is None:
        raise JoinError(
            f"`{source}` changes nothing: it takes no row away, and gives no field",
            hint=f"write the fields that it gives, `check? {source.pattern} as {{name}}`, or `check` for rows that "
            "have to be there",
            span=source.span,
        )
    bind = next((one for one in source.conditions if isinstance(one, Bind)), None)
    if bind is not None:
        raise JoinError(
            f"`{bind}` gives <{bind.slot.name}> no value where the record is missing",
            hint=f"a slot is never null: give the field as one of the value, `as {{{bind.path}}}`",
            span=bind.span,
        )


def check_composed(spec: JoinSpec) -> None:
    """Refuse a join whose value has fields of several sources, unless each row has one record of each.

    Requires:
        There is one value source.

    Raises:
        JoinError: With the reason, a hint, and the span of the source concerned.
    """
    if not spec.is_composed:
        return
    giving = next(source for source in spec.sources if source.gives_fields)
    value_source = spec.value_source
    if value_source.operator is not Operator.COPY:
        raise JoinError(
            f"`{giving}` gives fields, and `{value_source.operator}` gives no object to which they could be added",
            hint="compute it in another join, and copy its rows: `copy karma|<author> as {karma: .}`",
            span=giving.span,
        )
    if not isinstance(value_source.given, SomeFields):
        raise JoinError(
            f"`{giving}` gives fields, and `{value_source}` gives no object to which they could be added",
            hint=f"say which of its fields the value has: `copy {value_source.pattern} as {{title}}`",
            span=value_source.span,
        )
    _check_names(spec)
    shown = {slot.name for slot in spec.output.slots()}
    for source in spec.sources:
        for slot in source.bound():
            if slot.name not in shown:
                raise JoinError(
                    f"an output key may have several records of `{source}`: the output {spec.output} has no "
                    f"<{slot.name}>",
                    hint="a value with fields of several sources needs all slots of the join in its key",
                    span=source.span,
                )


def _check_names(spec: JoinSpec) -> None:
    names: set[str] = set()
    for source in spec.sources:
        if not isinstance(source.given, SomeFields):
            continue
        for name, _ in source.given.fields:
            if name in names:
                raise JoinError(
                    f"two sources give a field with the name {name!r}",
                    hint=f"give one of them another name: `as {{other: {name}}}`",
                    span=source.given.span,
                )
            names.add(name)
