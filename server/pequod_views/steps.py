"""Events of a watch as steps of a part: which rows to write, and which to delete.

Events that wait become one step: of the changes of one key only the last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pequod.answers.rows import Rows
from pequod.calls import WatchEvent
from pequod.escapes import shown
from pequod_views.definition import DurableView, TableRow
from pequod_views.errors import UnfitError
from pequod_views.ledger import Advance, Position

#: Rows in one statement, and rows that are converted between two turns of the event loop.
CHUNK_ROWS = 2000


@dataclass(frozen=True, slots=True)
class PartStep:
    """What one transaction does."""

    advance: Advance
    written: list[TableRow]
    deleted: list[bytes]


def position_of(event: WatchEvent) -> Position:
    """Return the position of a part that has taken an event in."""
    return Position(event.server_id, event.revision, event.token)


def step_of(view: DurableView, before: Position | None, events: Sequence[WatchEvent]) -> PartStep:
    """Return the step that takes in the changes of events that follow one another."""
    olds: dict[bytes, bytes | None] = {}
    news: dict[bytes, bytes | None] = {}
    count = 0
    for event in events:
        count += len(event.changes)
        for key, old, new in event.changes:
            olds.setdefault(key, old)
            news[key] = new
    written, deleted, unfit, example = list[TableRow](), list[bytes](), 0, ""
    for key, new in news.items():
        old = olds[key]
        if old is not None and isinstance(_row(view, key, old), UnfitError):
            unfit -= 1
        row = None if new is None else _row(view, key, new)
        if isinstance(row, UnfitError):
            unfit, example, row = unfit + 1, example or f"{shown(key)}: {row.reason}", None
        if row is None:
            deleted.append(key)
        else:
            written.append(row)
    advance = Advance(
        before,
        position_of(events[-1]),
        change_count=count,
        is_replacement=False,
        unfit_count=unfit,
        unfit_example=example,
        age_s=events[-1].age_s or 0.0,
    )
    return PartStep(advance, written, deleted)


async def replacement(
    view: DurableView, before: Position | None, event: WatchEvent
) -> tuple[Advance, list[list[TableRow]]]:
    """Return the step that makes a part what the first event of a watch shows, and its rows in chunks."""
    rows = event.rows or Rows([], [])
    chunks, unfit, example = list[list[TableRow]](), 0, ""
    for start in range(0, len(rows.keys), CHUNK_ROWS):
        some = slice(start, start + CHUNK_ROWS)
        chunk = []
        for key, value in zip(rows.keys[some], rows.values[some], strict=True):
            row = _row(view, key, value)
            if isinstance(row, UnfitError):
                unfit, example = unfit + 1, example or f"{shown(key)}: {row.reason}"
            elif row is not None:
                chunk.append(row)
        if chunk:
            chunks.append(chunk)
        await asyncio.sleep(0)
    advance = Advance(
        before,
        position_of(event),
        change_count=len(rows.keys),
        is_replacement=True,
        unfit_count=unfit,
        unfit_example=example,
        age_s=event.age_s or 0.0,
    )
    return advance, chunks


def _row(view: DurableView, key: bytes, value: bytes) -> TableRow | UnfitError | None:
    try:
        return view.row(key, value)
    except UnfitError as error:
        return error
