"""The source keys that can contribute to a range of outputs: containing ranges (paper §3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pequod.language import narrowing
from pequod.language.keeping import compile_group, widen
from pequod.language.narrowing import Narrowed, Narrowing
from pequod.language.patterns import Environment, compile_builder
from pequod.language.ranges import lower, prefix_end
from pequod.language.slots import fix_slots, known_run, number_slots
from pequod.language.spec import JoinSpec, Pattern, Slot


class Containing:
    """The tight end of a step's containing range (paper §3.1)."""

    __slots__ = ("_is_steady", "_narrow", "_output_prefix", "_tail", "_width")

    def __init__(
        self,
        output: Sequence[bytes | Slot],
        source_rest: Sequence[bytes | Slot],
        numbers: dict[str, int],
        known: set[str],
        fixed: set[str],
    ) -> None:
        run = known_run(output, known)
        self._output_prefix = compile_builder(output[:run], numbers)
        #: Whether the known part of the output key is the same for every environment of a read.
        self._is_steady = all(isinstance(part, bytes) or part.name in fixed for part in output[:run])
        self._narrow = _choose_narrowing(output[run:], source_rest)
        slot = output[run] if run < len(output) else None
        self._width = slot.width if isinstance(slot, Slot) else None
        rest = output[run + 1 :]
        rest_is_known = all(isinstance(part, bytes) or part.name in known for part in rest)
        self._tail = compile_builder(rest, numbers) if rest_is_known and self._width is not None else None

    def narrow(self, env: Environment, first: bytes, last: bytes) -> tuple[Narrowed | None, bool]:
        """Return the part of the known prefix's range that can contribute to output keys in ``[first, last)``.

        Returns:
            The bytes to append to the prefix, None if no key can contribute; and whether they are the same for all
            environments with the same fixed slots.
        """
        bounds = narrowing.relative(self._output_prefix(env), first, last)
        if bounds is None:
            return None, self._is_steady
        if self._narrow is None:
            return Narrowed(b"", None), self._is_steady
        lower, upper = bounds
        width = self._width
        if self._tail is not None and width is not None and max(len(lower), len(upper or b"")) > width:
            return narrowing.refine(width, lower, upper, self._tail(env)), False
        return self._narrow(lower, upper), self._is_steady


def _choose_narrowing(output: Sequence[bytes | Slot], source: Sequence[bytes | Slot]) -> Narrowing | None:
    """Return how bounds on the first of ``output`` bound the first of ``source``; None if they are different slots."""
    if not output or not source or output[0] != source[0]:
        return None
    slot = output[0]
    assert isinstance(slot, Slot)
    if slot.width is not None:
        return narrowing.fixed_width(slot.width)
    if len(output) == 1:
        return narrowing.end_to_end if len(source) == 1 else narrowing.end_to_open
    return narrowing.open_to_end if len(source) == 1 else narrowing.open_to_open


def keys_of(pattern: Pattern) -> tuple[bytes, bytes]:
    """Return the range that holds all keys of a pattern."""
    first = pattern.literal_prefix
    last = prefix_end(first) if any(pattern.slots()) else first + b"\0"
    assert last is not None, "a table name has an end"
    return first, last


def meet(first: bytes, last: bytes | None, within: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the intersection of two ranges; both ends of an empty one are equal."""
    start, end = max(first, within[0]), lower(last, within[1])
    assert end is not None
    return start, max(start, end)


def fixed_slots(spec: JoinSpec, first: bytes, last: bytes) -> dict[str, bytes]:
    """Return the slots that are the same in all outputs of ``[first, last)``, such as the user of a timeline."""
    values = fix_slots(spec.output, first, last)
    names = dict.fromkeys(slot.name for slot in spec.output.slots())
    return dict(zip(names, values, strict=False))


def containing_range(spec: JoinSpec, pattern: Pattern, first: bytes, last: bytes) -> tuple[bytes, bytes]:
    """Return a range that holds all keys of a source ``pattern`` that decide on the outputs of ``[first, last)``.

    With `keep`, these are all that contribute to the groups of these outputs.

    Requires:
        ``[first, last)`` lies within the join's outputs (`keys_of`).

    Source:
        Paper §3.1; `narrowing` with no earlier source known.
    """
    if spec.keep is not None and first < last:
        first, last = widen(compile_group(spec), first, last)
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
