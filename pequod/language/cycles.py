"""Joins together: which read their own output, and which keys would show one value of several."""

from __future__ import annotations

from pequod.language.errors import JoinError
from pequod.language.patterns import may_overlap
from pequod.language.spec import JoinSpec, Operator


def warnings_of(spec: JoinSpec) -> tuple[str, ...]:
    """Return what the author of a join should know: which of several values a key shows."""
    value = spec.value_source
    shown = {slot.name for slot in spec.output.slots()}
    missing = list(dict.fromkeys(slot.name for slot in value.slots() if slot.name not in shown))
    if value.operator is not Operator.COPY or not missing:
        return ()
    slots = ", ".join(f"<{name}>" for name in missing)
    warning = (
        f"ambiguous: keys of {value.pattern} that differ only in {slots} give one output key, which shows the value "
        f"of the greatest of them. Add {slots} to the output pattern, or use an aggregate"
    )
    return (warning,)


def refuse_cycles(specs: list[JoinSpec], fresh: set[JoinSpec]) -> None:
    """Refuse joins that read their own output, directly or through others.

    Args:
        specs: All joins.
        fresh: Those that are new.

    Raises:
        JoinError: One does; the message spells the cycle.
    """
    reads = {
        spec: [other for other in specs if any(may_overlap(source.pattern, other.output) for source in spec.sources)]
        for spec in specs
    }
    for start in specs:
        if start not in fresh:
            continue
        path = _path_back(start, reads)
        if path is not None:
            spelled = " reads ".join(str(spec.output) for spec in [*path, start])
            raise JoinError(
                f"the join would read its own output: {spelled}",
                hint="cache joins cannot be recursive; write the output to another table",
                span=start.output.span,
            )


def _path_back(start: JoinSpec, reads: dict[JoinSpec, list[JoinSpec]]) -> list[JoinSpec] | None:
    """Return the shortest chain of joins from ``start`` back to it, None if there is none."""
    paths = [[start]]
    seen: set[JoinSpec] = set()
    for path in paths:
        for other in reads[path[-1]]:
            if other == start:
                return path
            if other not in seen:
                seen.add(other)
                paths.append([*path, other])
    return None
