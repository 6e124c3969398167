"""Joins together: which read their own output, how deep they read, and which keys would show one value of several."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from operator import itemgetter
from typing import Final

from pequod.language.errors import JoinError
from pequod.language.patterns import may_overlap
from pequod.language.spec import JoinSpec, Operator

#: The most sources that a read goes through, each inside the one before: sources of one join, and of joins that it
#: reads. Each takes some 6 to 10 calls inside each other, of which Python allows 1,000.
NESTING_MAX: Final = 64


def warnings_of(spec: JoinSpec) -> tuple[str, ...]:
    """Return what the author of a join should know: which of several values a key shows."""
    value = spec.value_source
    shown = {slot.name for slot in spec.output.slots()}
    # A key has one value, so that what the value itself gives tells no keys apart.
    given = value.pattern.slots() if value.is_of_whole_values else value.slots()
    missing = list(dict.fromkeys(slot.name for slot in given if slot.name not in shown))
    if value.operator is not Operator.COPY or not missing:
        return ()
    slots = ", ".join(f"<{name}>" for name in missing)
    warning = (
        f"ambiguous: keys of {value.pattern} that differ only in {slots} give one output key, which shows the value "
        f"of the greatest of them. Add {slots} to the output pattern, or use an aggregate"
    )
    return (warning,)


def refuse_cycles(specs: Sequence[JoinSpec], fresh: Collection[JoinSpec]) -> None:
    """Refuse joins that read their own output, directly or through others, and those that read too deep.

    Args:
        specs: All joins.
        fresh: Those that are new.

    Raises:
        JoinError: One reads its own output; the message spells the cycle. Or one reads through more than
            ``NESTING_MAX`` sources; the message names the first and the last of them.

    Cost:
        O(joins, and pairs of them that share a table).
    """
    reads = _reads(specs)
    try:
        order = [*TopologicalSorter({at: {*chain(*sources)} for at, sources in enumerate(reads)}).static_order()]
    except CycleError:
        raise _cycle(specs, fresh, reads) from None
    _refuse_nesting(specs, fresh, reads, order)


def _reads(specs: Sequence[JoinSpec]) -> list[list[list[int]]]:
    """Return the numbers of the joins that each join reads, for each of its sources."""
    by_table: dict[bytes, list[int]] = {}
    for at, spec in enumerate(specs):
        by_table.setdefault(spec.output.table, []).append(at)
    return [
        [
            [
                other
                for other in by_table.get(source.pattern.table, ())
                if may_overlap(source.pattern, specs[other].output)
            ]
            for source in spec.sources
        ]
        for spec in specs
    ]


def _cycle(specs: Sequence[JoinSpec], fresh: Collection[JoinSpec], reads: list[list[list[int]]]) -> JoinError:
    """Return the error of the first new join that reads its own output."""
    paths = (_path_back(at, reads) for at, spec in enumerate(specs) if spec in fresh)
    path = next(path for path in paths if path is not None)
    spelled = " reads ".join(str(specs[at].output) for at in [*path, path[0]])
    return JoinError(
        f"the join would read its own output: {spelled}",
        hint="cache joins cannot be recursive; write the output to another table",
        span=specs[path[0]].output.span,
    )


def _path_back(start: int, reads: list[list[list[int]]]) -> list[int] | None:
    """Return the shortest chain of joins from ``start`` back to it, None if there is none."""
    paths = [[start]]
    seen: set[int] = set()
    for path in paths:
        for other in chain(*reads[path[-1]]):
            if other == start:
                return path
            if other not in seen:
                seen.add(other)
                paths.append([*path, other])
    return None


def _refuse_nesting(
    specs: Sequence[JoinSpec], fresh: Collection[JoinSpec], reads: list[list[list[int]]], order: Iterable[int]
) -> None:
    """Refuse joins that read through more than ``NESTING_MAX`` sources.

    Args:
        specs: All joins.
        fresh: Those that are new. Any of them may connect what was there before.
        reads: As `_reads` returns them.
        order: The numbers of the joins, each after those that it reads.
    """
    depths: dict[int, int] = {}
    #: The join that is read at the deepest place.
    below: dict[int, int | None] = {}
    for at in order:
        # A source is read inside the loops over those before it.
        found = [
            (number + max(depths[other] for other in others), max(others, key=depths.__getitem__))
            if others
            else (number, None)
            for number, others in enumerate(reads[at], 1)
        ]
        depths[at], below[at] = max(found, key=itemgetter(0))
        if depths[at] > NESTING_MAX:
            path: list[int] = [at]
            while (deeper := below[path[-1]]) is not None:
                path.append(deeper)
            new = next((one for one in path if specs[one] in fresh), at)
            ends = " .. ".join(str(specs[one].output) for one in dict.fromkeys((at, path[-1])))
            raise JoinError(
                f"reads would go through {depths[at]} sources, each inside the one before ({ends}); "
                f"{NESTING_MAX} are allowed",
                hint="joins over joins are for a few steps; have a program write the rows of a table between them",
                span=specs[new].output.span,
            )
