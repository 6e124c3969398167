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
from typing import Any, Final, NamedTuple, TypeAlias

from pequod.errors import PequodError
from pequod_views.versioned.known import LiveRow
from pequod_views.versioned.records import (
    EMPTY,
    NEVER,
    Cells,
    Forget,
    Get,
    Put,
    PutAll,
    StoredCell,
    StoredColumn,
    merge,
)
from pequod_views.versioned.rows import (
    FROM,
    NEXT,
    READY,
    ROOT,
    Pointer,
    Update,
    VersionedView,
    marks_of,
    put_columns,
    put_row,
    record_of,
    row_of,
    row_of_cells,
    view_column,
)
from pequod_views.versioned.shown import LiveRows, live_rows
from pequod_views.versioned.turns import Stamps

#: Reads of a row that is being made, before a reader gives up.
_READS_MAX: Final = 100

Request: TypeAlias = Get | Put | PutAll | Forget


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


class RowMisplacedError(RowBrokenError):
    """A live row of a selection view has a cell by which it belongs elsewhere, and which a dead coordinator left."""

    def __init__(self, view: str, base_key: str, row: str, cells: Cells) -> None:
        super().__init__(f"{view}: {base_key!r} is in the row {row!r}, and belongs elsewhere")
        self.base_key = base_key
        self.row = row
        #: Those of the row. Another read may not see the one that was left.
        self.cells = cells


class RingError(RowBrokenError):
    """Pointers of a base record lead in a ring: two processes without leases propagated its updates at once."""

    def __init__(self, view: str, base_key: str, rows: tuple[str, ...]) -> None:
        super().__init__(f"{view}: the rows of {base_key!r} lead in a ring: {', '.join(map(repr, rows))}")
        self.base_key = base_key
        self.rows = rows


class Propagated(NamedTuple):
    """What a propagation has done."""

    #: The live row.
    row: str
    #: The base record says that the updates were propagated.
    is_marked: bool


def propagate(
    view: VersionedView, updates: Sequence[Update], guess: str, quorum: int, turn: Stamps
) -> Generator[Request, Any, Propagated]:
    """Make a view what it is with updates (Algorithm 2). Doing it twice is as good as once.

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
        Of the view key: a read for each row from the guess to the live one, or none if the epoch of the turn knows
        that row, and three writes.
    """
    base_key = updates[0].key
    cells = {view_column(update.column, base_key): update.cell for update in updates}
    if not decide(view, updates):
        known = turn.known.add(view.name, base_key, cells)
        live = known or (yield from get_live_row(view, base_key, guess, quorum))
        yield put_columns(view, live.row, updates, quorum)
        return Propagated(live.row, is_marked=False)
    marks = Put(view.base, base_key, tuple(marks_of(view, updates).items()), quorum)
    if view.where:
        return (yield from place(view, base_key, cells, guess, quorum, turn, marks))
    columns = [update for update in updates if update.column != view.key_column]
    (key,) = (update for update in updates if update.column == view.key_column)
    del cells[view_column(view.key_column, base_key)]
    live = yield from _taken(view, base_key, guess, quorum, turn)
    new = Pointer(key.cell.timestamp, row_of(key.cell.value))
    is_newer = new.row != live.row and new > (live.time, live.row)
    merged = dict(live.columns)
    merge(merged, cells)
    if columns and not is_newer:
        yield put_columns(view, live.row, columns, quorum)
    if is_newer:
        yield from _move(view, base_key, live.row, new, merged, turn, quorum, marks)
    elif new.row != live.row:
        yield from put_stale(view, base_key, new.row, live, turn, quorum)
    elif new.time >= live.time:
        # Equal: an earlier attempt at this update, which may have reached less than a quorum.
        yield put_live(view, base_key, new, turn, quorum)
    now = max(new, Pointer(live.time, live.row))
    turn.known.keep(view.name, base_key, LiveRow(now.row, now.time, is_finished=True, columns=merged))
    return Propagated(now.row, is_marked=is_newer)


def _taken(
    view: VersionedView, base_key: str, guess: str, quorum: int, turn: Stamps
) -> Generator[Request, Any, LiveRow]:
    """Return the live row with its columns, for a turn that has the record alone and may have it go elsewhere."""
    known = turn.known.take(view.name, base_key)
    return known or (yield from get_live_row(view, base_key, guess, quorum, with_columns=True))


def decide(view: VersionedView, updates: Sequence[Update]) -> bool:
    """Return whether updates may give a record another row, so that their propagation needs the record alone."""
    return any(update.column in view.deciders for update in updates)


def place(
    view: VersionedView,
    base_key: str,
    cells: Cells,
    guess: str,
    quorum: int,
    turn: Stamps,
    marks: Put | None = None,
) -> Generator[Request, Any, Propagated]:
    """Have a record of a selection view be where its cells say.

    Several columns say it, each with a timestamp of its own, and their updates come in any order. So the live row keeps
    the newest cells of all of them, and the turns give the order of the rows that the record has had: each row is made
    from the one before, with the cells of both.

    Requires:
        Nothing else propagates updates of this base record.

    Args:
        cells: Those that the live row may not have yet.
        marks: They say in the base record that the cells were propagated; sent if the record goes elsewhere.

    Raises:
        NoLiveRowError: The guess is not in the view.
        RowBrokenError: See `mend`.

    Source:
        Ours; the paper says that selection is easy to add, and does not say how.
    """
    live = yield from _taken(view, base_key, guess, quorum, turn)
    all_cells = dict(live.columns)
    merge(all_cells, cells)
    row = row_of_cells(view, base_key, live.row, all_cells)
    if row == live.row == ROOT:
        now = Pointer(live.time, ROOT)
        yield put_row(view, ROOT, base_key, {}, quorum, all_cells)
    else:
        # With a pointer of this turn: a row that a dead coordinator began to make before is stale then.
        now = Pointer(turn.stamp(), row)
        if row != live.row:
            yield from _move(view, base_key, live.row, now, all_cells, turn, quorum, marks)
        else:
            yield put_live(view, base_key, now, turn, quorum, all_cells)
    turn.known.keep(view.name, base_key, LiveRow(row, now.time, is_finished=True, columns=all_cells))
    return Propagated(row, is_marked=row != live.row and marks is not None)


def _move(
    view: VersionedView,
    base_key: str,
    old_row: str,
    new: Pointer,
    cells: Cells,
    turn: Stamps,
    quorum: int,
    marks: Put | None,
) -> Generator[Request, Any, None]:
    """Have a record go from its live row to another one, and say in the base record that this was propagated.

    The base record may say so before the new row is ready: a reader or a sweep that finds the row makes it ready.
    """
    # From here on readers that find the row wait, until the old row is stale.
    stamp = turn.stamp()
    own = {NEXT: StoredCell(new.text, stamp), FROM: StoredCell(old_row, stamp)}
    yield put_row(view, new.row, base_key, own, quorum, cells)
    yield put_row(view, old_row, base_key, {NEXT: StoredCell(new.text, turn.stamp())}, quorum)
    ready = put_row(view, new.row, base_key, {READY: StoredCell("", stamp)}, quorum)
    yield ready if marks is None else PutAll((ready, marks), quorum)


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
    live = yield from chase(view, base_key, guess, quorum, with_columns=with_columns)
    if not live.is_finished:
        raise RowUnfinishedError(view.name, base_key, live.row)
    return live


def chase(
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
    columns = tuple(view_column(name, base_key) for name in view.kept) if with_columns else ()
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


def copy_data(
    view: VersionedView, base_key: str, live_row: str, new_row: str, quorum: int
) -> Generator[Request, Any, None]:
    """Copy the cells of a live row, with their timestamps, to the row that takes its place."""
    columns = tuple(view_column(name, base_key) for name in view.kept)
    if not columns:
        return
    cells: Cells = yield Get(view.name, record_of(live_row, base_key), columns, quorum)
    if cells:
        yield Put(view.name, record_of(new_row, base_key), tuple(cells.items()), quorum)


def get_view(view: VersionedView, key: str, quorum: int) -> Generator[Request, Any, dict[str, dict[str, StoredCell]]]:
    """Return the live rows with a view key: for each base key, its cells (Algorithm 4).

    Raises:
        RowBrokenError: A row is being made all the time, or has to be mended.
    """
    row = row_of(key)
    found = LiveRows({}, [], {})
    for _ in range(_READS_MAX):
        cells: Cells = yield Get(view.name, row, None, quorum)
        found = live_rows(view, row, cells)
        for base_key, own in found.misplaced.items():
            raise RowMisplacedError(view.name, base_key, row, own)
        if not found.unfinished:
            return found.rows
    raise RowUnfinishedError(view.name, found.unfinished[0], row)


def put_live(
    view: VersionedView, base_key: str, live: Pointer, turn: Stamps, quorum: int, columns: Cells | None = None
) -> Put:
    """Return the request that has a row lead to itself, finished."""
    stamp = turn.stamp()
    cells = {NEXT: StoredCell(live.text, stamp), READY: StoredCell("", stamp)}
    return put_row(view, live.row, base_key, cells, quorum, columns)


def put_stale(
    view: VersionedView, base_key: str, row: str, live: LiveRow, turn: Stamps, quorum: int
) -> Generator[Request, Any, None]:
    """Have a row lead to the live one; one that is not finished is being finished in this turn, and takes its cells."""
    pointer = Pointer(live.time, live.row)
    if live.is_finished:
        yield put_live(view, base_key, pointer, turn, quorum)
    yield put_row(view, row, base_key, {NEXT: StoredCell(pointer.text, turn.stamp())}, quorum)
