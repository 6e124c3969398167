"""Batches: the results of an execution, and how they are taken into a context.

tails    0000000100|bob   0000000120|liz      rows, or contributions to them
frames   depth 0: s|ann|    depth 1: p|bob|, p|liz|      where the context will wait
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import repeat
from typing import NamedTuple

from pequod.answers.rows import Rows
from pequod.engine.joins import timeline
from pequod.engine.joins.aggregates import State
from pequod.engine.joins.capped import RowChange
from pequod.engine.joins.compiled import CompiledJoin
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.plan import FrameKey
from pequod.engine.memory.ledger import BYTES


class Batch:
    """The results of an execution: contributions as parallel lists, and the frames to wait at."""

    __slots__ = ("extras", "frame_keys", "is_all", "source_keys", "tails", "values")

    def __init__(self, depths: int) -> None:
        #: Tails of output keys, keys of the value source (if they are needed), and its values.
        self.tails: list[bytes] = []
        self.source_keys: list[bytes] = []
        self.values: list[bytes] = []
        #: Whether these are all contributions to the range, else all that are not beyond the outermost of their tails.
        self.is_all = True
        #: For each depth: frame keys, and their extras if the step has any.
        self.frame_keys: list[list[FrameKey]] = [[] for _ in range(depths)]
        self.extras: list[list[tuple[bytes, ...]]] = [[] for _ in range(depths)]


class Frame(NamedTuple):
    """Nested loops stopped at a source, with the match of one of its keys.

    Of an `unless`, any of the keys that the frame waits for: what they have in common is known.
    """

    depth: int
    extras: tuple[bytes, ...] | None
    match: re.Match[bytes]
    #: The value of a key of the value source, from which the rows of the context were made.
    value_of: Callable[[bytes], bytes]


#: The rows that changed.
Told = list[RowChange]


def apply_batch(context: Context, sign: int, batch: Batch, told: Told | None) -> None:
    """Add (sign 1) or remove (sign -1) the results of an execution that a context covers.

    Args:
        context: Changed: its rows, aggregate states and frames.
        sign: 1 to add, -1 to remove.
        batch: The results.
        told: Each change of a row is appended here; None: no watch or join needs them.
    """
    if sign > 0:
        take_frames(context, batch)
    else:
        release_frames(context, batch)
    join = context.join
    if join.is_unique:
        _apply_rows(context, sign, batch, told)
        return
    for tail, source_key, value in zip(batch.tails, batch.source_keys, batch.values, strict=True):
        if context.covers(tail):
            old, new = (None, value) if sign > 0 else (value, None)
            changes = context.contribute(join.aggregate, tail, source_key, old, new)
            if told is not None:
                told += changes


def _apply_rows(context: Context, sign: int, batch: Batch, told: Told | None) -> None:
    covers, rows = context.covers, context.rows
    if context.kept is not None:
        for tail, value in zip(batch.tails, batch.values, strict=True):
            if covers(tail):
                own_bytes = BYTES + len(tail) + (0 if context.plan.compose is None else len(value))
                changes = context.place(tail, value if sign > 0 else None, own_bytes)
                if told is not None:
                    told += changes
        return
    gained = gained_bytes = 0
    has_own_values = context.plan.compose is not None
    for tail, value in zip(batch.tails, batch.values, strict=True):
        if not covers(tail):
            continue
        if sign > 0:
            before, after = rows.put(tail, value), value
            if before is None:
                gained += 1
                gained_bytes += BYTES + len(tail) + (len(value) if has_own_values else 0)
        else:
            before, after = rows.remove(tail), None
            if before is not None:
                context.lose_row()
        if told is not None:
            told.append((tail, before, after))
    context.gain_rows(gained, gained_bytes)


def once(told: Told) -> Told:
    """Return one change for each row: a field of a check that changes takes the row away, and brings it again."""
    changes: dict[bytes, tuple[bytes | None, bytes | None]] = {}
    for tail, old, new in told:
        changes[tail] = changes.get(tail, (old,))[0], new
    return [(tail, old, new) for tail, (old, new) in changes.items()]


def take_frames(context: Context, batch: Batch) -> None:
    """Add a context to the updaters at the frames of an execution."""
    for site, frame_keys, extras in zip(context.frames, batch.frame_keys, batch.extras, strict=True):
        if extras:
            for frame_key, values in zip(frame_keys, extras, strict=True):
                site.add(frame_key, values, context)
        elif frame_keys:
            site.add_all(frame_keys, context)


def release_frames(context: Context, batch: Batch) -> None:
    """Release a context's updaters at the frames of an execution."""
    for site, frame_keys, extras in zip(context.frames, batch.frame_keys, batch.extras, strict=True):
        for frame_key, values in zip(frame_keys, extras or repeat(None), strict=False):
            site.remove(frame_key, values, context)


def combine(join: CompiledJoin, batch: Batch, states: dict[bytes, State]) -> Rows:
    """Combine contributions into rows in the order of their tails; leave the aggregate states in ``states``."""
    if join.is_unique:
        return timeline.in_order(batch.tails, batch.values)
    aggregate = join.aggregate
    for tail, source_key, value in zip(batch.tails, batch.source_keys, batch.values, strict=True):
        state = aggregate.add(states.get(tail), source_key, value)
        if state is not None:
            states[tail] = state
    results = {tail: aggregate.result(state) for tail, state in states.items()}
    values = {tail: value for tail, value in results.items() if value is not None}
    tails = sorted(values)
    return Rows(tails, [values[tail] for tail in tails])
