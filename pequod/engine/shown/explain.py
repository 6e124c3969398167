"""How a join is evaluated and kept, and what a read of a range would find; nothing is computed or changed for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod.answers.explanations import (
    CoverageExplanation,
    DroppedExplanation,
    IndexExplanation,
    JoinExplanation,
    MisfitExplanation,
    Note,
    PartExplanation,
    PartState,
    SourceExplanation,
    Upkeep,
)
from pequod.engine.joins.contexts import StatusRange
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.memory.story import Dropped
from pequod.language.composing import without_object
from pequod.language.slots import known_run
from pequod.language.spec import Pattern, Slot, Snapshot

#: An explanation has at most this many dropped ranges.
DROPPED_MAX: Final = 20


def explain_dropped(dropped: Sequence[Dropped], now: float) -> tuple[DroppedExplanation, ...]:
    """Explain the latest dropped ranges."""
    return tuple(
        DroppedExplanation(one.name, one.first, one.last, one.reason.value, max(0.0, now - one.at_s))
        for one in dropped[: -1 - DROPPED_MAX : -1]
    )


def explain_join(join: InstalledJoin, warnings: tuple[str, ...], notes: tuple[Note, ...]) -> JoinExplanation:
    """Explain the plan of a join.

    Args:
        warnings: Those beside the join's own.
        notes: Why its sources have no rows.
    """
    spec = join.spec
    known = {slot.name for slot in list(spec.output.slots())[:1]}
    sources = []
    for depth, source in enumerate(spec.sources):
        sources.append(_explain_source(join, depth, known))
        known = known | {slot.name for slot in source.bound()}
    return JoinExplanation(
        name=join.info.name,
        text=str(spec),
        maintenance=_maintenance(join),
        is_unique=join.is_unique,
        sources=tuple(sources),
        warnings=(*join.info.warnings, *warnings),
        notes=notes,
    )


def _maintenance(join: InstalledJoin) -> str:
    declared = str(join.spec.maintenance)
    if join.is_pull and declared != "pull":
        pulled = [upstream.info.name for ups in join.upstreams for upstream in ups if upstream.is_pull]
        names = ", ".join(map(repr, dict.fromkeys(pulled)))
        declared = f"pull, because it reads {names}, which is computed on every read"
    return declared if join.spec.keep is None else f"{declared}; {_kept(join)}"


def _kept(join: InstalledJoin) -> str:
    """Return what `keep` costs: how much of a group is computed, and how many of its rows are held."""
    keep = join.spec.keep
    assert keep is not None
    plan = join.plan_at(len(keep.slots))
    assert plan.cap is not None
    wanted = plan.cap.count if join.is_pull else plan.cap.wanted
    computed = f"the first {wanted} rows" if plan.reads_ends else "all rows"
    if keep.is_last:
        computed = computed.replace("first", "last")
    if not join.is_push:
        return f"a read computes {computed} of a group"
    held = f"at most {plan.cap.held}" if plan.cap.is_unique else "all"
    return f"a first read computes {computed} of a group; {held} of its rows are held"


def _explain_source(join: InstalledJoin, depth: int, known: set[str]) -> SourceExplanation:
    source = join.spec.sources[depth]
    index = join.indexes[depth]
    plain = join.plain.sources[depth].pattern
    parts = (without_object(plain) if source.gives_fields else plain).parts
    is_pulled = any(upstream.is_pull for upstream in join.upstreams[depth])
    if index is not None and index.lens.view.is_indexed and is_pulled:
        # It reads the source's own keys.
        parts = source.pattern.parts
    run = known_run(parts, known)
    rest = parts[run:]
    output_rest = join.spec.output.parts[known_run(join.spec.output.parts, known) :]
    slot = rest[0] if rest else None
    is_narrowed = isinstance(slot, Slot) and bool(output_rest) and output_rest[0] == slot
    return SourceExplanation(
        source=str(source),
        reads=str(Pattern(parts[:run])),
        narrowed_by=slot.name if is_narrowed and isinstance(slot, Slot) else None,
        binds=tuple(dict.fromkeys(slot.name for slot in source.bound() if slot.name not in known)),
        upkeep=_upkeep(join, depth),
        computed_by=tuple(upstream.info.name for upstream in join.upstreams[depth]),
        index=None if index is None or is_pulled else _explain_index(index, parts),
        misfits=() if index is None else _explain_misfits(index),
    )


def _explain_index(index: Index, parts: tuple[bytes | Slot, ...]) -> IndexExplanation | None:
    if not index.lens.view.is_indexed:
        return None
    rows = index.rows
    return IndexExplanation(
        str(Pattern(parts)), rows is not None, 0 if rows is None else rows.entry_count, index.count_bytes()
    )


def _explain_misfits(index: Index) -> tuple[MisfitExplanation, ...]:
    return tuple(MisfitExplanation(misfit.value, count, key) for misfit, (count, key) in index.misfits.items())


def _upkeep(join: InstalledJoin, depth: int) -> Upkeep:
    if join.is_pull:
        return Upkeep.ON_READ
    if isinstance(join.spec.maintenance, Snapshot):
        return Upkeep.AT_EXPIRY
    is_last = depth == len(join.spec.sources) - 1
    is_eager = is_last and join.spec.sources[depth].operator.gives_value
    return Upkeep.EAGER if is_eager else Upkeep.LOGGED


def explain_coverage(join: InstalledJoin, first: bytes, last: bytes, now: float) -> CoverageExplanation:
    """Explain what a read of ``[first, last)`` would find in a join.

    Requires:
        The range lies in the range of the join's outputs.
    """
    plan, _, prefix = join.plan_for(first, last)
    first, last = max(first, prefix), min(last, plan.end_of(prefix))
    if join.is_pull:
        parts = [PartExplanation(first, last, PartState.PULLED)] if first < last else []
        return CoverageExplanation(join.info.name, tuple(parts), "compute the range")
    gaps = [PartExplanation(*gap, PartState.ABSENT) for gap in join.coverage.gaps(first, last)] if first < last else []
    held = [_explain_part(status, first, last, now) for status in join.coverage.over(first, last)]
    parts = sorted([*gaps, *held], key=lambda part: part.first)
    return CoverageExplanation(join.info.name, tuple(parts), _next_read(parts))


def _explain_part(status: StatusRange, first: bytes, last: bytes, now: float) -> PartExplanation:
    context = status.context
    start, stop = max(first, status.first), min(last, status.last)
    state = PartState.EXPIRED if context.expires_s < now else PartState.VALID if context.is_fresh else PartState.LOGGED
    updaters = context.updaters_count
    return PartExplanation(start, stop, state, context.count(start, stop), updaters, len(context.log))


def _next_read(parts: list[PartExplanation]) -> str:
    to_compute = sum(part.state in (PartState.ABSENT, PartState.EXPIRED) for part in parts)
    logged = [part for part in parts if part.state is PartState.LOGGED]
    todo = []
    if to_compute:
        todo.append("compute 1 range" if to_compute == 1 else f"compute {to_compute} ranges")
    if logged:
        entries = sum(part.log_entries for part in logged)
        applied = "apply 1 log entry" if entries == 1 else f"apply {entries} log entries"
        todo.append(applied if entries else "bring the sources' joins up to date")
    rows = sum(part.rows for part in parts if part.state in (PartState.VALID, PartState.LOGGED))
    if rows:
        todo.append("return 1 row that is there" if rows == 1 else f"return {rows} rows that are there")
    else:
        todo.append("return what that gives" if todo else "return nothing")
    return ", ".join(todo)
