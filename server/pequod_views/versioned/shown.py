"""What the cells of a view's record say: which rows a reader sees, and which a sweep has work with.

live        its pointer leads to itself
unfinished  live, and the cell `ready` has another stamp: a coordinator makes it, or died
misplaced   live in a selection view, and its cells say that it belongs elsewhere: a dead coordinator left one of them
stale       its pointer leads to another row
collected   its pointer is NULL
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pequod_views.versioned.records import EMPTY, NEVER, Cells, StoredCell, StoredColumn
from pequod_views.versioned.rows import (
    NEXT,
    READY,
    ROOT,
    Pointer,
    VersionedView,
    column_name,
    row_in,
    row_of_cells,
)


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The live rows in a record of a view."""

    #: By base key, with the columns that the view has. Those below are among them.
    rows: dict[str, dict[str, StoredCell]]
    unfinished: list[str]
    #: With their cells.
    misplaced: dict[str, Cells]


def live_rows(view: VersionedView, row: str, cells: Cells) -> LiveRows:
    """Return the live rows among the cells of a record."""
    found = LiveRows({}, [], {})
    columns: dict[str, dict[StoredColumn, StoredCell]] = {
        base_key: {}
        for (name, base_key), cell in cells.items()
        if name == NEXT and cell.value is not None and Pointer.of(cell.value).row == row
    }
    for column, cell in cells.items():
        if column.base_key in columns and column_name(column) is not None:
            columns[column.base_key][column] = cell
    for base_key, own in columns.items():
        next_time = cells[StoredColumn(NEXT, base_key)].timestamp
        if cells.get(StoredColumn(READY, base_key), EMPTY).timestamp != next_time:
            found.unfinished.append(base_key)
        elif row_of_cells(view, base_key, row, own) != row:
            found.misplaced[base_key] = own
        named = {column_name(column): cell for column, cell in own.items()}
        found.rows[base_key] = {name: named[name] for name in view.columns if name in named}
    return found


@dataclass(frozen=True, slots=True)
class SweptRows:
    """What there is to do in a record of a view, as base keys."""

    #: Live rows that a coordinator left half made.
    unfinished: list[str]
    #: With their cells.
    misplaced: dict[str, Cells]
    stale: list[str]
    #: Rows that were collected, with the stamp of that.
    collected: dict[str, int]


def swept_rows(view: VersionedView, record: str, cells: Cells) -> SweptRows:
    """Return what a sweep finds in a record of a view."""
    swept = SweptRows([], {}, [], {})
    for (name, base_key), cell in cells.items():
        row = row_in(record, base_key)
        if name != NEXT or row == ROOT:
            continue
        if cell.value is None:
            swept.collected[base_key] = cell.timestamp
        elif Pointer.of(cell.value).row != row:
            swept.stale.append(base_key)
        elif cells.get(StoredColumn(READY, base_key), EMPTY).timestamp != cell.timestamp:
            swept.unfinished.append(base_key)
        elif row_of_cells(view, base_key, row, cells) != row:
            swept.misplaced[base_key] = {
                column: one
                for column, one in cells.items()
                if column.base_key == base_key and column_name(column) is not None
            }
    return swept


def pointers_of(base_key: str, records: Mapping[str, Cells]) -> dict[str, str]:
    """Return where the rows of a base record point to, for tests of Definition 3; collected rows are left out."""
    cells = {record: found.get(StoredColumn(NEXT, base_key), EMPTY) for record, found in records.items()}
    return {
        row_in(record, base_key): Pointer.of(cell.value).row
        for record, cell in cells.items()
        if cell.timestamp != NEVER and cell.value is not None
    }
