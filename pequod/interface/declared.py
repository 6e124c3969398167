"""The joins of an application as one declaration: which of them are to be added, and which are to go.

    installed   karma|<author> = count ..      t|<user>|.. = ..
    declared    karma|<author> = sum ..        t|<user>|.. = ..      perhaps with other spaces
    changes     + karma .. sum                 = t
                - karma .. count

New joins are added before old ones are dropped: what is refused is refused before anything has changed, and readers see
the old rows or the new ones, never none. Only if the new joins would close a circle with old ones do these go first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pequod.answers.joins import Join, JoinChanges
from pequod.language.cycles import refuse_cycles
from pequod.language.errors import JoinError, UnknownJoinError
from pequod.language.shadowing import hides

if TYPE_CHECKING:
    from pequod.language.spec import JoinSpec


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """What is to be done, and in which order."""

    changes: JoinChanges
    #: Whether the new joins cannot stand beside those that go.
    drops_first: bool


def plan_of(text: str, installed: Sequence[Join]) -> JoinPlan:
    """Return how the joins of a text become the only ones.

    Raises:
        JoinError: The text declares no join, or one of them is wrong, or another one would hide it; with its place.
    """
    # Only this call of clients needs the grammar, whose import takes longer than theirs.
    from pequod_grammar import parse_some  # noqa: PLC0415

    declared = {spec: spec for spec in parse_some(text)}
    there = [(join, _read(join)) for join in installed]
    kept = [(join, spec) for join, spec in there if spec in declared]
    kept_specs = [declared[spec] for _, spec in kept if spec is not None]
    fresh = [spec for spec in declared if spec not in kept_specs]
    try:
        refuse_cycles([*kept_specs, *fresh], {*fresh})
        _refuse_hidden([*kept_specs, *fresh])
    except JoinError as error:
        raise error.with_text(text) from None
    # Readers of others were installed after them, as a rule, and go before them.
    dropped = [(join, spec) for join, spec in reversed(there) if spec not in declared]
    changes = JoinChanges(
        tuple(Join("", str(spec)) for spec in fresh),
        tuple(join for join, _ in dropped),
        tuple(join for join, _ in kept),
    )
    return JoinPlan(changes, drops_first=_is_circular([spec for _, spec in there if spec is not None], fresh))


async def carry_out(
    plan: JoinPlan, text: str, add: Callable[[str], Awaitable[list[Join]]], drop: Callable[[str], Awaitable[None]]
) -> set[str]:
    """Do what is to be done; return the names of the new joins, whose warnings still speak of those that went.

    Args:
        plan: How the joins of the text become the only ones.
        add: Installs all joins of a text.
        drop: Drops the join of a name.
    """

    async def drop_all() -> None:
        for join in plan.changes.dropped:
            # Another client may have dropped it meanwhile.
            with suppress(UnknownJoinError):
                await drop(join.name)

    if plan.drops_first:
        await drop_all()
    installed = await add(text)
    if not plan.drops_first:
        await drop_all()
    return {join.name for join in installed} - {join.name for join in plan.changes.kept}


def _read(join: Join) -> JoinSpec | None:
    """Return an installed join as a value; None if it is of a server that knows more of the language."""
    from pequod_grammar import parse  # noqa: PLC0415

    try:
        (spec,) = parse(join.text)
    except JoinError:
        return None
    return spec


def _refuse_hidden(specs: Sequence[JoinSpec]) -> None:
    by_table: dict[bytes, list[JoinSpec]] = {}
    for spec in specs:
        earlier = by_table.setdefault(spec.output.table, [])
        hiding = next((one for one in earlier if hides(one, spec)), None)
        if hiding is not None:
            raise JoinError(
                f"nothing of this join would be shown: `{hiding}` computes the same keys before it",
                hint="leave one of them out, or choose another output table",
                span=spec.span,
            )
        earlier.append(spec)


def _is_circular(installed: Iterable[JoinSpec], fresh: Sequence[JoinSpec]) -> bool:
    try:
        refuse_cycles([*installed, *fresh], {*fresh})
    except JoinError:
        return True
    return False
