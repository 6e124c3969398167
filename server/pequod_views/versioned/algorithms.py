"""Versioned views: the algorithms, as generators that yield what they ask of a store and are sent the replies.

The old row of an update is found without anybody who knows the old value: from any view key that the base record has
had, the pointers lead to the live row. So updates may be propagated in any order.

Beyond the paper: each base record has a *root* row, where its chain begins, so there is always a guess that is right;
and a row for "no view key", to which a delete leads as any other key, so deletes need nothing of their own. Pointers
have the stamps of turns, so that coordinators may die anywhere, see `turns`. A turn that writes a pointer to a row also
writes that row's own pointer; so what a dead one has left there, unseen, has no say any more, and there are no loops.

Source:
    Jin, Liu, Salem: Materialized Views for Eventually Consistent Record Stores, algorithms 1 to 4, section IV-F.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pequod.errors import PequodError
from pequod_views.versioned.records import EMPTY, NEVER, Cells, Forget, Get, Put, StoredCell, StoredColumn, merge
from pequod_views.versioned.rows import (
    FROM,
    NEXT,
    READY,
    ROOT,
    Pointer,
    Update,
    VersionedView,
    live_rows,
    put_columns,
    put_row,
    record_of,
    row_of,
    view_column,
)
from pequod_views.versioned.turns import Stamps

#: Reads of a row that is being made, before a reader gives up.
_READS_MAX: Final = 100

Request: TypeAlias = Get | Put | Forget


class NoLiveRowError(PequodError):
    """The guess is a view key whose row is not in the view: not yet, or not any more. Another guess is needed."""

    def __init__(self, view: str, base_key: str) -> None:
        super().__init__(f"{view}: no row of {base_key!r} has the view key that was guessed")


class RowBrokenError(PequodError):
    """What a propagation met has to be mended before it can go on, see `mend`."""

    base_key: str


class RowUnfinishedError(RowBrokenError):
    """A live row is half made: its coordinator is at work, or has died."""

    def __init__(self, view: str, base_key: str, row: str) -> None:
        super().__init__(f"{view}: the row {row!r} of {base_key!r} is not finished")
        self.base_key = base_key
        self.row = row


class RingError(RowBrokenError):
    """Pointers of a base record lead in a ring: two processes without leases propagated its updates at once."""

    def __init__(self, view: str, base_key: str, rows: tuple[str, ...]) -> None:
        super().__init__(f"{view}: the rows of {base_key!r} lead in a ring: {', '.join(map(repr, rows))}")
        self.base_key = base_key
        self.rows = rows


@dataclass(frozen=True, slots=True)
class LiveRow:
    """The row that a base record has in a view."""

    row: str
    #: The timestamp of its view key; NEVER for the root of a record that had none.
    time: int
    is_finished: bool
    #: The cells of its columns, if they were asked for.
    columns: Cells


def propagate(
    view: VersionedView, updates: Sequence[Update], guess: str, quorum: int, turn: Stamps
) -> Generator[Request, Any, str]:
    """Make a view what it is with updates, and return the live row (Algorithm 2). Doing it twice is as good as once.

    Requires:
        The updates are of different columns of one base record. Nothing else propagates updates of the view key of
        this base record, and while the view key is among these, nothing else propagates any update of the record.

    Args:
        guess: A row of the base record.
        quorum: A majority of the replicas, so that each read sees the writes before it.

    Raises:
        NoLiveRowError: The guess is not in the view.
        RowBrokenError: See `mend`.

    Cost:
        Of the view key: a read for each row from the guess to the live one, and three writes.
    """
    base_key = updates[0].key
    columns = [update for update in updates if update.column != view.key_column]
    keys = [update for update in updates if update.column == view.key_column]
    if not keys:
        live = yield from get_live_row(view, base_key, guess, quorum)
        yield put_columns(view, live.row, columns, quorum)
        return live.row
    live = yield from get_live_row(view, base_key, guess, quorum, with_columns=True)
    new = Pointer(keys[0].cell.timestamp, row_of(keys[0].cell.value))
    is_newer = new.row != live.row and new > (live.time, live.row)
    if columns and not is_newer:
        yield put_columns(view, live.row, columns, quorum)
    if is_newer:
        # From here on readers that find the row wait, until the old row is stale.
        stamp = turn.stamp()
        cells = dict(live.columns)
        merge(cells, {view_column(update.column, base_key): update.cell for update in columns})
        own = {NEXT: StoredCell(new.text, stamp), FROM: StoredCell(live.row, stamp)}
        yield put_row(view, new.row, base_key, own, quorum, cells)
        yield put_row(view, live.row, base_key, {NEXT: StoredCell(new.text, turn.stamp())}, quorum)
        yield put_row(view, new.row, base_key, {READY: StoredCell("", stamp)}, quorum)
    elif new.row != live.row:
        yield from _put_stale(view, base_key, new.row, live, turn, quorum)
    elif new.time >= live.time:
        # Equal: an earlier attempt at this update, which may have reached less than a quorum.
        yield _put_live(view, base_key, new, turn, quorum)
    return new.row if is_newer else live.row


def get_live_row(
    view: VersionedView, base_key: str, guess: str, quorum: int, *, with_columns: bool = False
) -> Generator[Request, Any, LiveRow]:
    """Return the live row (Algorithm 3).

    Raises:
        NoLiveRowError: The guess is not in the view.
        RowBrokenError: A coordinator died while it made the row, or pointers lead in a ring; see `mend`.

    Cost:
        One read for each stale row between the guess and the live row.
    """
    live = yield from _chase(view, base_key, guess, quorum, with_columns=with_columns)
    if not live.is_finished:
        raise RowUnfinishedError(view.name, base_key, live.row)
    return live


def _chase(
    view: VersionedView,
    base_key: str,
    guess: str,
    quorum: int,
    healed: str = "",
    turn: Stamps | None = None,
    *,
    with_columns: bool = False,
) -> Generator[Request, Any, LiveRow]:
    """Follow pointers to the last row, finished or not.

    Args:
        healed: A row that is healed in ``turn``. The pointers on the way are written again, since one may be at less
            than a quorum; and as of that turn, since another coordinator that died may have left a pointer from an
            earlier one where this read did not look. Rows that a pointer leads away from may have been written as live
            ones, so their cells are copied to the healed row again, too.
    """
    row, passed = guess, dict[str, None]()
    next_column, ready = StoredColumn(NEXT, base_key), StoredColumn(READY, base_key)
    columns = tuple(view_column(name, base_key) for name in view.columns) if with_columns else ()
    while row not in passed:
        passed[row] = None
        cells: Cells = yield Get(view.name, record_of(row, base_key), (next_column, ready, *columns), quorum)
        cell = cells.get(next_column, EMPTY)
        if cell.value is None:
            if row == ROOT:
                # A base record that has no view key yet.
                return LiveRow(ROOT, NEVER, is_finished=True, columns=_of(columns, cells))
            raise NoLiveRowError(view.name, base_key)
        pointer = Pointer.of(cell.value)
        if pointer.row == row:
            is_finished = cells.get(ready, EMPTY).timestamp == cell.timestamp
            return LiveRow(row, pointer.time, is_finished, _of(columns, cells))
        if turn is not None:
            yield from copy_data(view, base_key, row, healed, quorum)
            yield put_row(view, row, base_key, {NEXT: StoredCell(cell.value, turn.stamp())}, quorum)
        row = pointer.row
    rows = tuple(passed)
    raise RingError(view.name, base_key, rows[rows.index(row) :])


def _of(columns: Sequence[StoredColumn], cells: Cells) -> Cells:
    return {column: cells[column] for column in columns if column in cells}


def mend(view: VersionedView, broken: RowBrokenError, quorum: int, turn: Stamps) -> Generator[Request, Any, None]:
    """Mend what a propagation met.

    Requires:
        Nothing else propagates updates of this base record.
    """
    match broken:
        case RowUnfinishedError(base_key=base_key, row=row):
            yield from heal(view, base_key, row, quorum, turn)
        case RingError(base_key=base_key, rows=rows):
            yield from open_ring(view, base_key, rows, quorum, turn)
        case _:
            raise AssertionError("there are two kinds")


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
            live = yield from _chase(view, base_key, before, quorum, row, turn)
        except NoLiveRowError:
            # Collected, and then the root leads to the live row.
            before = ROOT
            continue
        if live.is_finished or live.row in {row, *later}:
            break
        yield from heal(view, base_key, live.row, quorum, turn, (*later, row))
    if live.row != row:
        if (live.time, live.row) > new:
            yield from _put_stale(view, base_key, row, live, turn, quorum)
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
    yield _put_live(view, base_key, live, turn, quorum)
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
    try:
        live = yield from get_live_row(view, base_key, row, quorum)
    except NoLiveRowError:
        # Collected, or it leads to one that is.
        live = yield from get_live_row(view, base_key, ROOT, quorum)
    if live.row in {row, ROOT}:
        return
    pointer = Pointer(live.time, live.row)
    yield _put_live(view, base_key, pointer, turn, quorum)
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
    del turn
    record, column = record_of(row, base_key), StoredColumn(NEXT, base_key)
    cells: Cells = yield Get(view.name, record, None, replica_count // 2 + 1)
    tombstone = cells.get(column, EMPTY)
    if tombstone != StoredCell(None, stamp):
        return
    # A replica without the tombstone may have the row as a live one, which would come back.
    yield put_row(view, row, base_key, {NEXT: tombstone}, replica_count)
    own = tuple((one, cell) for one, cell in cells.items() if one.base_key == base_key)
    yield Forget(view.name, record, own, replica_count)


def copy_data(
    view: VersionedView, base_key: str, live_row: str, new_row: str, quorum: int
) -> Generator[Request, Any, None]:
    """Copy the cells of a live row, with their timestamps, to the row that takes its place."""
    columns = tuple(view_column(name, base_key) for name in view.columns)
    if not columns:
        return
    cells: Cells = yield Get(view.name, record_of(live_row, base_key), columns, quorum)
    if cells:
        yield Put(view.name, record_of(new_row, base_key), tuple(cells.items()), quorum)


def get_view(view: VersionedView, key: str, quorum: int) -> Generator[Request, Any, dict[str, dict[str, StoredCell]]]:
    """Return the live rows with a view key: for each base key, its cells (Algorithm 4).

    Raises:
        RowUnfinishedError: A row is being made all the time.
    """
    unfinished: list[str] = []
    for _ in range(_READS_MAX):
        cells: Cells = yield Get(view.name, row_of(key), None, quorum)
        rows, unfinished = live_rows(row_of(key), cells)
        if not unfinished:
            return rows
    raise RowUnfinishedError(view.name, unfinished[0], row_of(key))


def _put_live(view: VersionedView, base_key: str, live: Pointer, turn: Stamps, quorum: int) -> Put:
    stamp = turn.stamp()
    cells = {NEXT: StoredCell(live.text, stamp), READY: StoredCell("", stamp)}
    return put_row(view, live.row, base_key, cells, quorum)


def _put_stale(
    view: VersionedView, base_key: str, row: str, live: LiveRow, turn: Stamps, quorum: int
) -> Generator[Request, Any, None]:
    """Have a row lead to the live one; one that is not finished is being finished in this turn, and takes its cells."""
    pointer = Pointer(live.time, live.row)
    if live.is_finished:
        yield _put_live(view, base_key, pointer, turn, quorum)
    yield put_row(view, row, base_key, {NEXT: StoredCell(pointer.text, turn.stamp())}, quorum)
