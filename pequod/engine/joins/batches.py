"""Batches: what an execution found, and how it is taken into a context.

tails    0000000100|bob   0000000120|liz      rows, or contributions to them
frames   depth 0: s|ann|    depth 1: p|bob|, p|liz|      where the context is to wait
"""

from __future__ import annotations

from itertools import repeat

from pequod.engine.joins.contexts import Context
from pequod.engine.joins.plan import FrameKey
from pequod.engine.memory.ledger import BYTES


class Batch:
    """What an execution found: contributions as parallel lists, and the frames to wait at."""

    __slots__ = ("extras", "frame_keys", "source_keys", "tails", "values")

    def __init__(self, depths: int) -> None:
        #: Tails of output keys, the keys of the value source (not where they are not needed), and its values.
        self.tails: list[bytes] = []
        self.source_keys: list[bytes] = []
        self.values: list[bytes] = []
        #: Per depth: frame keys, and as many extras if the step has any.
        self.frame_keys: list[list[FrameKey]] = [[] for _ in range(depths)]
        self.extras: list[list[tuple[bytes, ...]]] = [[] for _ in range(depths)]


#: Tails of rows that changed, with their values before and after.
Told = list[tuple[bytes, bytes | None, bytes | None]]


def apply_batch(context: Context, sign: int, batch: Batch, told: Told | None) -> None:
    """Add (sign 1) or take away (sign -1) what an execution found, as far as a context covers it.

    Args:
        context: Its rows, aggregate states and frames change.
        sign: Whether to add or to take away.
        batch: What was found.
        told: Each change of a row is added here; None: nothing follows the rows.
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
            before, after = context.contribute(join.aggregate, tail, source_key, old, new)
            if told is not None:
                told.append((tail, before, after))


def _apply_rows(context: Context, sign: int, batch: Batch, told: Told | None) -> None:
    covers, rows = context.covers, context.rows
    gained = gained_bytes = 0
    for tail, value in zip(batch.tails, batch.values, strict=True):
        if not covers(tail):
            continue
        if sign > 0:
            before, after = rows.put(tail, value), value
            if before is None:
                gained += 1
                gained_bytes += BYTES + len(tail)
        else:
            before, after = rows.remove(tail), None
            if before is not None:
                context.lose_row()
        if told is not None:
            told.append((tail, before, after))
    context.gain_rows(gained, gained_bytes)


def take_frames(context: Context, batch: Batch) -> None:
    """Let a context wait at the frames that an execution passed through."""
    for site, frame_keys, extras in zip(context.frames, batch.frame_keys, batch.extras, strict=True):
        if extras:
            for frame_key, values in zip(frame_keys, extras, strict=True):
                site.add(frame_key, values, context)
        elif frame_keys:
            site.add_all(frame_keys, context)


def release_frames(context: Context, batch: Batch) -> None:
    """Let a context no longer wait at the frames that an execution passed through."""
    for site, frame_keys, extras in zip(context.frames, batch.frame_keys, batch.extras, strict=True):
        for frame_key, values in zip(frame_keys, extras or repeat(None), strict=False):
            site.remove(frame_key, values, context)
