"""Which source keys the outputs of a range can come from (paper §3.1)."""

from __future__ import annotations

from pequod.engine.patterns import compile_builder, known_run
from pequod.engine.plan import Containing, fix_slots, number_slots
from pequod.engine.ranges import lower, prefix_end
from pequod.engine.spec import JoinSpec, Pattern


def keys_of(pattern: Pattern) -> tuple[bytes, bytes]:
    """Return the range that holds all keys of a pattern."""
    first = pattern.literal_prefix
    last = prefix_end(first) if any(pattern.slots()) else first + b"\0"
    assert last is not None, "a table name has an end"
    return first, last


def meet(first: bytes, last: bytes | None, within: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return what two ranges share; an empty range has both ends equal."""
    start, end = max(first, within[0]), lower(last, within[1])
    assert end is not None
    return start, max(start, end)


def fixed_slots(spec: JoinSpec, first: bytes, last: bytes) -> dict[str, bytes]:
    """Return the slots that are the same in all outputs of ``[first, last)``, such as the user of a timeline."""
    values = fix_slots(spec.output, first, last)
    names = dict.fromkeys(slot.name for slot in spec.output.slots())
    return dict(zip(names, values, strict=False))


def containing_range(spec: JoinSpec, pattern: Pattern, first: bytes, last: bytes) -> tuple[bytes, bytes]:
    """Return a range that holds all keys of a source ``pattern`` that contribute to outputs of ``[first, last)``.

    Requires:
        ``[first, last)`` lies within the join's outputs (`keys_of`).

    Source:
        Paper §3.1; `narrowing` with no earlier source known.
    """
    fixed = fixed_slots(spec, first, last)
    numbers = number_slots(spec)
    values = [fixed.get(name, b"") for name in numbers]
    run = known_run(pattern.parts, set(fixed))
    prefix = compile_builder(pattern.parts[:run], numbers)(values)
    containing = Containing(spec.output.parts, pattern.parts[run:], numbers, set(fixed), set(fixed))
    narrowed, _ = containing.narrow(values, first, last)
    if narrowed is None:
        return prefix, prefix
    if run == len(pattern.parts):
        return prefix, prefix + b"\0"
    end = prefix_end(prefix) if narrowed.last is None else prefix + narrowed.last
    assert end is not None, "a table name has an end"
    return meet(prefix + narrowed.first, end, keys_of(pattern))
