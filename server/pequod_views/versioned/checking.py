"""A check goes over base tables and views, and says where a view is not what its base says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pequod_views.versioned.records import EMPTY, Cells, RecordStore
from pequod_views.versioned.rows import (
    VersionedView,
    base_column,
    check_cells,
    check_views,
    record_of,
    row_in,
    row_of,
    row_of_base,
    undone,
)
from pequod_views.versioned.scanning import KeyScan
from pequod_views.versioned.shown import live_rows


@dataclass(slots=True)
class Checked:
    """What a check has seen."""

    #: Base records, once for each view.
    records: int = 0
    #: Those with writes that are not propagated yet: nothing is said of them.
    pending: int = 0
    #: Replicas that did not tell which records they have: one that they alone have was not looked at.
    replicas_away: int = 0
    #: Sentences, one for each record that a view has in another way than its base.
    wrong: list[str] = field(default_factory=list)
    #: Views of which there was nothing to look at: neither a record of the base nor a row.
    empty: list[str] = field(default_factory=list)


async def check_rows(store: RecordStore, views: Sequence[VersionedView]) -> Checked:
    """Compare views with their bases, as a majority of the replicas has both.

    Raises:
        QuorumError: Too few replicas answer.
        EarlierFormatError: A record of a view is of an earlier version.
    """
    check_views(views)
    checked = Checked()
    for view in views:
        base, rows, is_empty = KeyScan(store, view.base), KeyScan(store, view.name), True
        async for base_key in base:
            checked.records += 1
            is_empty = False
            await _check_record(store, view, base_key, checked)
        async for record in rows:
            is_empty = False
            await _check_rows(store, view, record, checked)
        if is_empty:
            checked.empty.append(view.name)
        checked.replicas_away = max(checked.replicas_away, base.replicas_away, rows.replicas_away)
    return checked


async def _get(store: RecordStore, table: str, key: str) -> Cells:
    return await store.get(table, key, None, store.replica_count // 2 + 1)


async def _check_record(store: RecordStore, view: VersionedView, base_key: str, checked: Checked) -> None:
    """Look for the row of a base record."""
    for _ in range(2):
        base = await _get(store, view.base, base_key)
        if undone(view, base_key, base):
            checked.pending += 1
            return
        place = row_of_base(view, base)
        if place is None:
            # A row that it should not have is found in its own record.
            return
        row = place
        cells = await _get(store, view.name, record_of(row, base_key))
        check_cells(view.name, row, cells)
        rows = live_rows(view, row, cells).rows
        wanted = {name: base[base_column(name)] for name in view.columns if base_column(name) in base}
        if rows.get(base_key) == wanted:
            return
        # Perhaps it was written between the two reads.
    there = "has no row for it" if base_key not in rows else f"has {rows[base_key]}, and the base {wanted}"
    key = row.removeprefix(row_of(""))
    checked.wrong.append(f"{view.name}: {base_key!r} is at {key!r} in the base, and the view {there}")


async def _check_rows(store: RecordStore, view: VersionedView, record: str, checked: Checked) -> None:
    """Look for rows that are in a record of a view, and should be elsewhere."""
    cells = await _get(store, view.name, record)
    check_cells(view.name, record, cells)
    for base_key in live_rows(view, record, cells).rows:
        base = await _get(store, view.base, base_key)
        if undone(view, base_key, base):
            continue
        row = row_of_base(view, base)
        if row == row_in(record, base_key):
            continue
        if base_key in live_rows(view, record, await _get(store, view.name, record)).rows:
            key = base.get(base_column(view.key_column), EMPTY).value
            is_at = f"is at {key!r} in the base" if row or key is None else "does not meet the view's conditions"
            shown = record.removeprefix(row_of(""))
            checked.wrong.append(f"{view.name}: {base_key!r} is shown at {shown!r}, and {is_at}")
