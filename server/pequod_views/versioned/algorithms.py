"""Versioned views: the algorithms, as generators that yield what they ask of a store and are sent the replies.

    base       ticket 2: assigned kim@1, then cy@5, then ray@3 (arrives last)
    view       root -> kim -> cy (live)        ray -> cy
               rows are (view key, base key); `next` points to a row with a newer key, of the live row to itself

The old row of an update is found without anybody who knows the old value: from any view key that the base record has
had, the pointers lead to the live row. So updates may be propagated in any order.

Beyond the paper: each base record has a *root* row, where its chain begins, so there is always a guess that is right;
and a row for "no view key", to which a delete leads as any other key, so deletes need nothing of their own. A pointer
always has the timestamp of the row that it points to, when that was live. So two pointers with one timestamp are equal,
and replicas agree whatever was written by halves; the paper gives a late row two pointers of one timestamp.

Source:
    Jin, Liu, Salem: Materialized Views for Eventually Consistent Record Stores, algorithms 1 to 4, section IV-F.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pequod.errors import PequodError
from pequod_views.versioned.records import EMPTY, NEVER, Cells, Get, Put, StoredCell, StoredColumn

_NEXT: Final = "next"
#: Has the timestamp of `next` once a live row has all of its cells; readers wait for that.
_READY: Final = "ready"
#: The row that was live before, written with `next`: the row may have been part of the chain to it, which is cut then.
_FROM: Final = "from"
#: The rows of a base record that no view key names: where it begins, and where it is while its view key is deleted.
_ROOT: Final = "root"
_GONE: Final = "gone"
_KEY: Final = "key "
#: Reads of a row that is being made, before a reader gives up.
_READS_MAX: Final = 100

Request: TypeAlias = Get | Put


@dataclass(frozen=True, slots=True)
class VersionedView:
    """A view of a base table by another column, with some columns beside it (Definition 1)."""

    name: str
    base: str
    #: The column whose value is the view key.
    key_column: str
    #: The columns that the view has as well.
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """A write of one cell of a base record."""

    table: str
    key: str
    column: str
    cell: StoredCell


class NoLiveRowError(PequodError):
    """The guess is a view key whose update has not been propagated yet; another guess is needed."""

    def __init__(self, view: str, base_key: str) -> None:
        super().__init__(f"{view}: no row of {base_key!r} has the view key that was guessed")


class RowUnfinishedError(PequodError):
    """A live row is half made: its coordinator is at work, or has died."""

    def __init__(self, view: str, base_key: str, key: str) -> None:
        super().__init__(f"{view}: the row of {base_key!r} with the key {key!r} is not finished")
        self.base_key = base_key
        self.key = key


def base_column(name: str) -> StoredColumn:
    """Return a column of a base table."""
    return StoredColumn(name)


def row_of(key: str | None) -> str:
    """Return the row of a view key."""
    return _GONE if key is None else f"{_KEY}{key}"


def guesses(old: Sequence[StoredCell]) -> list[str]:
    """Return rows to begin at for view keys that a record had, the likeliest first; the root is always right."""
    rows = [row_of(cell.value) for cell in sorted(old, key=lambda cell: -cell.timestamp)]
    return [*dict.fromkeys(rows), _ROOT]


def propagate(view: VersionedView, update: Update, guess: str, quorum: int) -> Generator[Request, Any, None]:
    """Make a view what it is with an update (Algorithm 2). Doing it twice is as good as once.

    Requires:
        Nothing else propagates updates of the view key of this base record, and while this is one of the view key
        nothing else propagates any update of the record.

    Args:
        guess: A row of the base record.
        quorum: A majority of the replicas, so that each read sees the writes before it.

    Raises:
        NoLiveRowError: The guess is not in the view.
        RowUnfinishedError: See `heal`.
    """
    live_key, live = yield from get_live_key(view, update.key, guess, quorum)
    if update.column != view.key_column:
        yield _put(view, live_key, update.key, {update.column: update.cell}, quorum)
        return
    new_key, new = row_of(update.cell.value), update.cell.timestamp
    if new_key == live_key:
        # Equal: an earlier attempt at this update, which may have reached less than a quorum.
        if new >= live:
            yield _put(
                view, new_key, update.key, {_NEXT: StoredCell(new_key, new), _READY: StoredCell("", new)}, quorum
            )
        return
    if (new, new_key) < (live, live_key):
        # An earlier attempt may have written the row as a live one, at less than a quorum.
        yield _put(view, new_key, update.key, {_NEXT: StoredCell(live_key, live)}, quorum)
        return
    # From here on readers that find the row wait, until it has its cells and the old row is stale.
    yield _put(view, new_key, update.key, {_NEXT: StoredCell(new_key, new), _FROM: StoredCell(live_key, new)}, quorum)
    yield from copy_data(view, update.key, live_key, new_key, quorum)
    yield _put(view, live_key, update.key, {_NEXT: StoredCell(new_key, new)}, quorum)
    yield _put(view, new_key, update.key, {_READY: StoredCell("", new)}, quorum)


def get_live_key(
    view: VersionedView, base_key: str, guess: str, quorum: int
) -> Generator[Request, Any, tuple[str, int]]:
    """Return the view key of the live row and its timestamp (Algorithm 3).

    Raises:
        NoLiveRowError: The guess is not in the view.
        RowUnfinishedError: A coordinator died while it made the row; `heal` finishes it.

    Cost:
        One read for each stale row between the guess and the live row.
    """
    key, is_finished, live = yield from _chase(view, base_key, guess, quorum)
    if not is_finished:
        raise RowUnfinishedError(view.name, base_key, key)
    return key, live


def _chase(
    view: VersionedView, base_key: str, guess: str, quorum: int, healed: str | None = None
) -> Generator[Request, Any, tuple[str, bool, int]]:
    """Follow pointers; return the last row, whether it is finished, and its timestamp.

    Args:
        healed: A row to which the pointers are written again, since one may be at less than a quorum; then rows that
            it leads away from may have been written as live ones, so their cells are copied again, too.
    """
    key, column, ready = guess, StoredColumn(_NEXT, base_key), StoredColumn(_READY, base_key)
    while True:
        cells: Cells = yield Get(view.name, _record(key, base_key), (column, ready), quorum)
        pointer = cells.get(column, EMPTY)
        if pointer.timestamp == NEVER:
            if key == _ROOT:
                # A base record that has no view key yet.
                return _ROOT, True, NEVER
            raise NoLiveRowError(view.name, base_key)
        following = pointer.value
        assert following is not None, "pointers are never deleted"
        if following == key:
            return key, cells.get(ready, EMPTY).timestamp == pointer.timestamp, pointer.timestamp
        if healed is not None:
            yield from copy_data(view, base_key, key, healed, quorum)
            yield _put(view, key, base_key, {_NEXT: pointer}, quorum)
        key = following


def heal(view: VersionedView, base_key: str, key: str, quorum: int) -> Generator[Request, Any, None]:
    """Finish a live row whose coordinator died while it made it.

    Requires:
        Nothing else propagates updates of this base record.

    Source:
        Ours; the paper does not say what becomes of half a propagation.
    """
    column, ready, origin = StoredColumn(_NEXT, base_key), StoredColumn(_READY, base_key), StoredColumn(_FROM, base_key)
    cells: Cells = yield Get(view.name, _record(key, base_key), (column, ready, origin), quorum)
    pointer = cells.get(column, EMPTY)
    new = pointer.timestamp
    if new == NEVER or pointer.value != key or cells.get(ready, EMPTY).timestamp == new:
        return
    # Leads to the row that is live, or to this one if the old row is stale already.
    before = cells[origin].value
    assert before is not None, "it was live"
    # The row may be at less than a quorum, and others will be led to it.
    yield _put(view, key, base_key, {_NEXT: pointer, _FROM: cells[origin]}, quorum)
    while True:
        live_key, is_finished, live = yield from _chase(view, base_key, before, quorum, key)
        if is_finished or live_key == key:
            break
        yield from heal(view, base_key, live_key, quorum)
    if live_key != key:
        if (live, live_key) > (new, key):
            yield _put(view, key, base_key, {_NEXT: StoredCell(live_key, live)}, quorum)
            return
        yield from copy_data(view, base_key, live_key, key, quorum)
        yield _put(view, live_key, base_key, {_NEXT: StoredCell(key, new)}, quorum)
    yield _put(view, key, base_key, {_READY: StoredCell("", new)}, quorum)


def copy_data(
    view: VersionedView, base_key: str, live_key: str, new_key: str, quorum: int
) -> Generator[Request, Any, None]:
    """Copy the cells of a live row, with their timestamps, to the row that takes its place."""
    columns = tuple(StoredColumn(name, base_key) for name in view.columns)
    if not columns:
        return
    cells: Cells = yield Get(view.name, _record(live_key, base_key), columns, quorum)
    if cells:
        yield Put(view.name, _record(new_key, base_key), tuple(cells.items()), quorum)


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


def live_rows(row: str, cells: Cells) -> tuple[dict[str, dict[str, StoredCell]], list[str]]:
    """Return the live rows among the cells of a record, and the base keys of those that are not finished."""
    rows: dict[str, dict[str, StoredCell]] = {}
    unfinished: list[str] = []
    for (name, base_key), cell in cells.items():
        if name != _NEXT or cell.value != row:
            continue
        if cells.get(StoredColumn(_READY, base_key), EMPTY).timestamp != cell.timestamp:
            unfinished.append(base_key)
        rows[base_key] = {
            column.name: value
            for column, value in cells.items()
            if column.base_key == base_key and column.name not in {_NEXT, _READY, _FROM}
        }
    return rows, unfinished


def pointers_of(base_key: str, records: Mapping[str, Cells]) -> dict[str, str | None]:
    """Return where the rows of a base record point to, for tests of Definition 3."""
    cells = {record: found.get(StoredColumn(_NEXT, base_key)) for record, found in records.items()}
    suffix = f" {base_key}"
    return {
        record if record.startswith(_KEY) else record.removesuffix(suffix): cell.value
        for record, cell in cells.items()
        if cell is not None
    }


def _record(row: str, base_key: str) -> str:
    # Rows without a view key are records of their own: one for all would be a record that every update reads.
    return row if row.startswith(_KEY) else f"{row} {base_key}"


def _put(view: VersionedView, key: str, base_key: str, cells: dict[str, StoredCell], quorum: int) -> Put:
    named = tuple((StoredColumn(name, base_key), cell) for name, cell in cells.items())
    return Put(view.name, _record(key, base_key), named, quorum)
