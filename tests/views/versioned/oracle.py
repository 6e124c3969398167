"""What a view should be, straight from Definitions 1 to 3 of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pequod_views.versioned import StoredCell, Update, VersionedView
from pequod_views.versioned.records import EMPTY, Cells, newest
from pequod_views.versioned.rows import ROOT, row_of
from pequod_views.versioned.shown import live_rows, pointers_of

#: For each view key and base key, the cells of the row.
Rows = dict[tuple[str, str], dict[str, StoredCell]]


def view_of(view: VersionedView, updates: Iterable[Update]) -> Rows:
    """Apply updates in the order of their timestamps, and return the view of the base that results (Definition 2)."""
    base: dict[tuple[str, str], StoredCell] = {}
    for update in updates:
        place = update.key, update.column
        base[place] = newest(base.get(place, EMPTY), update.cell)
    return {
        (cell.value, key): {name: base[key, name] for name in view.columns if (key, name) in base}
        for (key, column), cell in base.items()
        if column == view.key_column
        and cell.value is not None
        and all(one.holds(base.get((key, one.column), EMPTY).value) for one in view.where)
    }


def updates_in(view: VersionedView, records: Mapping[str, Cells]) -> list[Update]:
    """Return the updates that a base table shows."""
    return [
        Update(view.base, key, column.name, cell)
        for key, cells in records.items()
        for column, cell in cells.items()
        if not column.base_key
    ]


def rows_in(view: VersionedView, records: Mapping[str, Cells]) -> tuple[Rows, list[tuple[str, str]]]:
    """Return the live rows of a view's records, and which of them a reader has mended first."""
    found: Rows = {}
    unfinished: list[tuple[str, str]] = []
    for key, cells in records.items():
        if not key.startswith("key "):
            continue
        live = live_rows(view, key, cells)
        name = key.removeprefix("key ")
        unfinished += [(name, base_key) for base_key in (*live.unfinished, *live.misplaced)]
        found |= {(name, base_key): row for base_key, row in live.rows.items()}
    return found, unfinished


def seen_in(view: VersionedView, records: Mapping[str, Cells]) -> Rows:
    """Return the rows of a view's records that no reader has to mend.

    Where a propagation lost its lease, a view with conditions may have a row that is begun, and that the next attempt
    does not need any more: by what was propagated meanwhile the record belongs elsewhere.
    """
    found, unfinished = rows_in(view, records)
    assert view.where or not unfinished, f"unfinished: {unfinished}"
    return {place: row for place, row in found.items() if place not in unfinished}


def judge(
    view: VersionedView, updates: Sequence[Update], records: Mapping[str, Cells], *, are_all_kept: bool = True
) -> None:
    """Compare the records of a versioned view with Definition 3 after the propagation of updates.

    Args:
        are_all_kept: No stale row was collected.
    """
    assert seen_in(view, records) == view_of(view, updates)
    if view.where:
        # Its pointers lead on in the order of the turns, whatever the timestamps of updates are.
        return
    for base_key in {update.key for update in updates}:
        times = {ROOT: -1}
        for update in updates:
            if update.key == base_key and update.column == view.key_column:
                value = row_of(update.cell.value)
                times[value] = max(update.cell.timestamp, times.get(value, -1))
        live = max(times, key=lambda key: (times[key], key))
        pointers = pointers_of(base_key, records)
        if pointers and are_all_kept:
            assert pointers.keys() == times.keys(), "a row for each view key that there was, and no other"
        assert pointers.keys() <= times.keys()
        for key, following in pointers.items():
            assert (key == following) == (key == live), "only the live row points to itself"
            if key != live:
                assert (times[following], following) > (times[key], key), "pointers lead to newer keys"


def judge_swept(view: VersionedView, records: Mapping[str, Cells], base: Mapping[str, Cells]) -> None:
    """Compare a view with its base after a sweep, which leaves the root and the live row of each base record."""
    found, unfinished = rows_in(view, records)
    assert not unfinished, f"unfinished: {unfinished}"
    assert found == view_of(view, updates_in(view, base))
    for base_key in base:
        pointers = pointers_of(base_key, records)
        assert len(pointers) in {0, 2}, "a stale row is left"
        assert all(pointers[row] == row for row in pointers.values()), "the root leads to the live row"
