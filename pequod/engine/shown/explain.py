"""How a join is evaluated and kept, and what a read of a range would find; nothing is computed or changed for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pequod.engine.joins.contexts import StatusRange
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.memory.story import Dropped
from pequod.language.slots import known_run
from pequod.language.spec import Operator, Pattern, Slot, Snapshot

#: An explanation has at most this many dropped ranges.
DROPPED_MAX: Final = 20


class Upkeep(StrEnum):
    """When a change of a source reaches the output."""

    EAGER = "eager"
    LOGGED = "logged, applied at the next read"
    ON_READ = "read anew by every read"
    AT_EXPIRY = "read anew when the snapshot expires"


@dataclass(frozen=True, slots=True)
class IndexExplanation:
    """The index through which a source reads records; other sources that see the same have the same one."""

    #: The order of its rows: the pattern of their keys.
    order: str
    #: Whether it is there; the first read that needs it makes it.
    is_made: bool
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MisfitExplanation:
    """A reason for which values give a source no row."""

    reason: str
    #: How often a new value, or one that was read, was looked at and did not match.
    count: int
    #: The latest key with such a value.
    key: bytes


@dataclass(frozen=True, slots=True)
class SourceExplanation:
    """One step of a plan, for a read that fixes the output's first slot."""

    source: str
    #: The part of the source key that is known when the step is reached: it reads the keys with this prefix.
    reads: str
    #: The slot by which bounds of the read narrow this range, if they do.
    narrowed_by: str | None
    #: The slots that the source's keys bind.
    binds: tuple[str, ...]
    upkeep: Upkeep
    #: Names of the joins that compute keys of this source.
    computed_by: tuple[str, ...]
    #: None if it needs none, or cannot have one because joins compute its keys.
    index: IndexExplanation | None = None
    misfits: tuple[MisfitExplanation, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinExplanation:
    """A join's plan."""

    name: str
    text: str
    #: The effective maintenance, with the reason if it differs from the declared one.
    maintenance: str
    #: Whether each output key has at most one contribution.
    is_unique: bool
    sources: tuple[SourceExplanation, ...]
    warnings: tuple[str, ...]


class PartState(StrEnum):
    """The state of a part of a join's output, as a read finds it."""

    VALID = "valid"
    LOGGED = "logged"
    EXPIRED = "expired"
    ABSENT = "absent"
    PULLED = "computed on every read"


@dataclass(frozen=True, slots=True)
class PartExplanation:
    """A part of a range that is in one state."""

    first: bytes
    last: bytes
    state: PartState
    rows: int = 0
    updaters: int = 0
    log_entries: int = 0


@dataclass(frozen=True, slots=True)
class CoverageExplanation:
    """One join in a range, and the work of the next read of the range for it."""

    join: str
    parts: tuple[PartExplanation, ...]
    next_read: str


@dataclass(frozen=True, slots=True)
class DroppedExplanation:
    """A range that was computed or loaded, and was dropped."""

    #: The name of the join that computed it, or of the table that a database owns.
    name: str
    first: bytes
    last: bytes
    #: The reason.
    reason: str
    #: How long ago, to a tenth of a second.
    ago_s: float


@dataclass(frozen=True, slots=True)
class RangeExplanation:
    """What a read of ``[first, last)`` would find."""

    first: bytes
    last: bytes | None
    #: Client-written keys in the range.
    stored_keys: int
    joins: tuple[CoverageExplanation, ...]
    #: The dropped parts of the range, the latest first; only the latest dropped ranges of the engine are known.
    dropped: tuple[DroppedExplanation, ...] = ()
    #: How fresh it is, and what a read with a level would wait for, in words; empty where there is no server.
    freshness: str = ""


def explain_dropped(dropped: Sequence[Dropped], now: float) -> tuple[DroppedExplanation, ...]:
    """Explain the latest dropped ranges."""
    return tuple(
        DroppedExplanation(one.name, one.first, one.last, one.reason.value, max(0.0, now - one.at_s))
        for one in dropped[: -1 - DROPPED_MAX : -1]
    )


def explain_join(join: InstalledJoin) -> JoinExplanation:
    """Explain the plan of a join."""
    spec = join.spec
    known = {slot.name for slot in list(spec.output.slots())[:1]}
    sources = []
    for depth, source in enumerate(spec.sources):
        sources.append(_explain_source(join, depth, known))
        known = known | {slot.name for slot in source.slots()}
    return JoinExplanation(
        name=join.info.name,
        text=str(spec),
        maintenance=_maintenance(join),
        is_unique=join.is_unique,
        sources=tuple(sources),
        warnings=join.info.warnings,
    )


def _maintenance(join: InstalledJoin) -> str:
    declared = str(join.spec.maintenance)
    if join.is_pull and declared != "pull":
        pulled = [upstream.info.name for ups in join.upstreams for upstream in ups if upstream.is_pull]
        return f"pull, because it reads {', '.join(map(repr, dict.fromkeys(pulled)))}, which is computed on every read"
    return declared


def _explain_source(join: InstalledJoin, depth: int, known: set[str]) -> SourceExplanation:
    source = join.spec.sources[depth]
    index = join.indexes[depth]
    parts = join.plain.sources[depth].pattern.parts
    if index is not None and index.lens.view.is_indexed and join.upstreams[depth]:
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
        binds=tuple(dict.fromkeys(slot.name for slot in source.slots() if slot.name not in known)),
        upkeep=_upkeep(join, depth),
        computed_by=tuple(upstream.info.name for upstream in join.upstreams[depth]),
        index=None if index is None or join.upstreams[depth] else _explain_index(index, parts),
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
    is_eager = is_last and join.spec.sources[depth].operator is not Operator.CHECK
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
