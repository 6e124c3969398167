"""Repairs of versioned views: what dead coordinators left half made, and rows that are not needed any more.

They are generators as the `algorithms` are, in the same turns.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from pequod_views.versioned.algorithms import (
    NoLiveRowError,
    Request,
    RingError,
    RowBrokenError,
    RowMisplacedError,
    RowUnfinishedError,
    chase,
    copy_data,
    get_live_row,
    place,
    put_live,
    put_stale,
)
from pequod_views.versioned.records import EMPTY, Cells, Forget, Get, StoredCell, StoredColumn
from pequod_views.versioned.rows import FROM, NEXT, READY, ROOT, Pointer, VersionedView, put_row, record_of, row_in
from pequod_views.versioned.shown import SweptRows
from pequod_views.versioned.turns import Stamps


def broken_rows(view: VersionedView, record: str, swept: SweptRows) -> list[RowBrokenError]:
    """Return what there is to mend in a record of a view."""
    unfinished = [(base_key, row_in(record, base_key)) for base_key in swept.unfinished]
    misplaced = [(base_key, row_in(record, base_key), cells) for base_key, cells in swept.misplaced.items()]
    return [
        *(RowUnfinishedError(view.name, *one) for one in unfinished),
        *(RowMisplacedError(view.name, *one) for one in misplaced),
    ]


def mend(view: VersionedView, broken: RowBrokenError, quorum: int, turn: Stamps) -> Generator[Request, Any, None]:
    """Mend what a propagation met.

    Requires:
        Nothing else propagates updates of this base record.
    """
    turn.known.take(view.name, broken.base_key)
    match broken:
        case RowUnfinishedError(base_key=base_key, row=row):
            yield from heal(view, base_key, row, quorum, turn)
        case RowMisplacedError(base_key=base_key, row=row, cells=cells):
            try:
                yield from place(view, base_key, cells, row, quorum, turn)
            except NoLiveRowError:
                yield from place(view, base_key, cells, ROOT, quorum, turn)
        case RingError(base_key=base_key, rows=rows):
            yield from open_ring(view, base_key, rows, quorum, turn)
        case _:
            raise AssertionError("there are three kinds")


def heal(
    view: VersionedView, base_key: str, row: str, quorum: int, turn: Stamps, later: tuple[str, ...] = ()
) -> Generator[Request, Any, None]:
    """Finish a live row whose coordinator died while it made it, and before it those that it was made from.

    Nothing is done if it is finished.

    Requires:
        Nothing else propagates updates of this base record.

    Args:
        later: Rows that are finished after this one, since they were made from it. It may have been made from one of
            them, when that had an older view key: if that it was finished since was seen at one replica alone.

    Source:
        Ours; the paper does not say what becomes of half a propagation.
    """
    column, ready, origin = StoredColumn(NEXT, base_key), StoredColumn(READY, base_key), StoredColumn(FROM, base_key)
    cells: Cells = yield Get(view.name, record_of(row, base_key), (column, ready, origin), quorum)
    cell = cells.get(column, EMPTY)
    if cell.value is None or cells.get(ready, EMPTY).timestamp == cell.timestamp:
        return
    new = Pointer.of(cell.value)
    if new.row != row:
        return
    # Leads to the row that is live, or to this one if the old row is stale already.
    before = cells[origin].value
    assert before is not None, "it was live"
    # The row may be at less than a quorum, and others will be led to it.
    stamp = turn.stamp()
    again = {NEXT: StoredCell(new.text, stamp), FROM: StoredCell(before, stamp)}
    yield put_row(view, row, base_key, again, quorum)
    while True:
        try:
            live = yield from chase(view, base_key, before, quorum, row, turn)
        except NoLiveRowError:
            # Collected, and then the root leads to the live row.
            before = ROOT
            continue
        if live.is_finished or live.row in {row, *later}:
            break
        yield from heal(view, base_key, live.row, quorum, turn, (*later, row))
    if live.row != row:
        if (live.time, live.row) > new:
            yield from put_stale(view, base_key, row, live, turn, quorum)
            return
        yield from copy_data(view, base_key, live.row, row, quorum)
        yield put_row(view, live.row, base_key, {NEXT: StoredCell(new.text, turn.stamp())}, quorum)
    yield put_row(view, row, base_key, {READY: StoredCell("", stamp)}, quorum)


def open_ring(
    view: VersionedView, base_key: str, rows: Sequence[str], quorum: int, turn: Stamps
) -> Generator[Request, Any, None]:
    """Make the row live to which the newest pointer of a ring leads, and have the others and the root lead to it.

    Requires:
        Nothing else propagates updates of this base record.

    Source:
        Ours; with leases there are no rings, but what was written without them may have some.
    """
    pointers: list[Pointer] = []
    for row in rows:
        cells: Cells = yield Get(view.name, record_of(row, base_key), (StoredColumn(NEXT, base_key),), quorum)
        cell = cells.get(StoredColumn(NEXT, base_key), EMPTY)
        if cell.value is None or (pointer := Pointer.of(cell.value)).row not in rows or pointer.row == row:
            # Mended meanwhile.
            return
        pointers.append(pointer)
    live = max(pointers)
    for row in rows:
        if row not in {live.row, ROOT}:
            yield from copy_data(view, base_key, row, live.row, quorum)
    yield put_live(view, base_key, live, turn, quorum)
    for row in dict.fromkeys([*rows, ROOT]):
        if row != live.row:
            yield put_row(view, row, base_key, {NEXT: StoredCell(live.text, turn.stamp())}, quorum)


def collect(view: VersionedView, base_key: str, row: str, quorum: int, turn: Stamps) -> Generator[Request, Any, None]:
    """Take a stale row out of the chain, and leave a tombstone; nothing is done if it is not stale.

    A guess that is such a row fails, and the next one is tried; the root leads past it from now on.

    Requires:
        Nothing else propagates updates of this base record.

    Raises:
        RowBrokenError: See `mend`.

    Source:
        Ours; the paper's stale rows stay for ever.
    """
    turn.known.take(view.name, base_key)
    try:
        live = yield from get_live_row(view, base_key, row, quorum)
    except NoLiveRowError:
        # Collected, or it leads to one that is.
        live = yield from get_live_row(view, base_key, ROOT, quorum)
    if live.row in {row, ROOT}:
        return
    pointer = Pointer(live.time, live.row)
    yield put_live(view, base_key, pointer, turn, quorum)
    yield put_row(view, ROOT, base_key, {NEXT: StoredCell(pointer.text, turn.stamp())}, quorum)
    yield put_row(view, row, base_key, {NEXT: StoredCell(None, turn.stamp())}, quorum)


def forget(
    view: VersionedView, base_key: str, row: str, stamp: int, replica_count: int, turn: Stamps
) -> Generator[Request, Any, None]:
    """Remove the cells of a row that was collected, tombstone and all.

    Requires:
        Nothing else propagates updates of this base record, and no message from before the collection is under way.

    Args:
        stamp: That of the tombstone; a row that was written since is left as it is.
    """
    turn.known.take(view.name, base_key)
    record, column = record_of(row, base_key), StoredColumn(NEXT, base_key)
    cells: Cells = yield Get(view.name, record, None, replica_count // 2 + 1)
    tombstone = cells.get(column, EMPTY)
    if tombstone != StoredCell(None, stamp):
        return
    # A replica without the tombstone may have the row as a live one, which would come back.
    yield put_row(view, row, base_key, {NEXT: tombstone}, replica_count)
    own = tuple((one, cell) for one, cell in cells.items() if one.base_key == base_key)
    yield Forget(view.name, record, own, replica_count)
