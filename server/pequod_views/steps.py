"""Events of a watch as steps of a part: which rows to write, and which to delete.

Changes that wait become one step: of those of one key only the last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pequod.answers.changes import Change
from pequod.answers.rows import Rows
from pequod.client.watch_ranges import RangesEvent
from pequod.escapes import shown
from pequod_views.definition import DurableView, TableRow
from pequod_views.errors import UnfitError
from pequod_views.parts import Advance, Position

#: Rows in one statement, and rows that are converted between two turns of the event loop.
CHUNK_ROWS = 2000


@dataclass(frozen=True, slots=True)
class PartStep:
    """What one transaction does."""

    advance: Advance
    written: list[TableRow]
    deleted: list[bytes]


def position_of(event: RangesEvent) -> Position:
    """Return the position of a part that has taken an event in."""
    return Position(event.server_id, event.revision, event.token)


def changes_of(events: Sequence[RangesEvent]) -> dict[int, list[Change]]:
    """Return the changes of events that follow one another, by the numbers of their ranges."""
    if len(events) == 1:
        return events[0].changes
    changes: dict[int, list[Change]] = {}
    for event in events:
        for number, some in event.changes.items():
            changes.setdefault(number, []).extend(some)
    return changes


def step_of(
    view: DurableView, before: Position | None, last: RangesEvent, changes: Sequence[Change], *, unfit_count: int
) -> PartStep:
    """Return the step that takes in changes.

    Args:
        last: The event behind which the part is then.
        unfit_count: Of the rows of the part so far.
    """
    olds: dict[bytes, bytes | None] = {}
    news: dict[bytes, bytes | None] = {}
    for key, old, new in changes:
        olds.setdefault(key, old)
        news[key] = new
    written, deleted, unfit, example = list[TableRow](), list[bytes](), 0, ""
    if unfit_count:
        unfit -= sum(old is not None and isinstance(_row(view, key, old), UnfitError) for key, old in olds.items())
    for key, new in news.items():
        row = None if new is None else _row(view, key, new)
        if isinstance(row, UnfitError):
            unfit, example, row = unfit + 1, example or f"{shown(key)}: {row.reason}", None
        if row is None:
            deleted.append(key)
        else:
            written.append(row)
    advance = Advance(
        before,
        position_of(last),
        change_count=len(changes),
        is_replacement=False,
        unfit_count=unfit,
        unfit_example=example,
        age_s=last.age_s or 0.0,
    )
    return PartStep(advance, written, deleted)


async def replacement(
    view: DurableView, before: Position | None, event: RangesEvent, rows: Rows
) -> tuple[Advance, list[list[TableRow]]]:
    """Return the step that makes a part what its rows in the first event of a watch are, and these in chunks."""
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
