"""Several processes over one store: any of them writes any record, and a ring that was left before is mended."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_views.versioned import (
    RingError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    StoredColumn,
    StoreSession,
    Update,
    UpdatesRefusedError,
    ViewCoordinator,
    ViewLateError,
    ViewSweeper,
)
from pequod_views.versioned.algorithms import get_live_row
from pequod_views.versioned.propagation import Propagator
from pequod_views.versioned.rows import NEXT, READY, ROOT, Pointer, record_of, row_of, view_column
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.masters import Sqlite, run
from tests.views.versioned.oracle import view_of
from tests.views.versioned.schedules import VIEW


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}.db" for number in range(3)]


@pytest.fixture
def store(paths: list[Path]) -> Iterator[SqliteReplicas]:
    store = SqliteReplicas(paths, synchronous="OFF")
    yield store
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_and_paused_leave_the_view_of_the_base(tmp_path: Path, seed: int) -> None:
    assert run(seed, Sqlite(tmp_path)) == []


async def leave_a_ring(store: SqliteReplicas) -> list[Update]:
    """Leave what two processes without leases left: the rows a and b lead to each other, and the root to a."""
    updates = [
        Update("ticket", "1", "assigned", StoredCell("a", 3)),
        Update("ticket", "1", "assigned", StoredCell("b", 5)),
        Update("ticket", "1", "status", StoredCell("x", 4)),
    ]
    to_a, to_b = Pointer(3, row_of("a")), Pointer(5, row_of("b"))
    for row, pointer in {ROOT: to_a, row_of("a"): to_b, row_of("b"): to_a}.items():
        cells = {StoredColumn(NEXT, "1"): StoredCell(pointer.text, 7)}
        if row == row_of("a"):
            cells[view_column("status", "1")] = updates[2].cell
        await store.put(VIEW.name, record_of(row, "1"), cells, 3)
    for update in updates:
        mark = StoredColumn(f"done {update.column}", VIEW.name), StoredCell("", update.cell.timestamp)
        await store.put("ticket", "1", dict([(StoredColumn(update.column), update.cell), mark]), 3)
    return updates


async def test_a_ring_is_found(store: SqliteReplicas, leases: ShareLeases) -> None:
    await leave_a_ring(store)
    steps = get_live_row(VIEW, "1", ROOT, 2)
    with pytest.raises(RingError, match="lead in a ring") as ring:
        await Propagator(store, leases).carry_out(steps)
    assert set(ring.value.rows) == {row_of("a"), row_of("b")}


async def test_a_sweep_mends_a_ring(store: SqliteReplicas, leases: ShareLeases) -> None:
    updates = await leave_a_ring(store)
    async with asyncio.timeout(60):
        await ViewSweeper(store, [VIEW], leases).sweep()
        coordinator = ViewCoordinator(store, [VIEW], leases)
        assert await coordinator.get_view(VIEW, "a") == {}
        assert await coordinator.get_view(VIEW, "b") == {"1": {"status": StoredCell("x", 4)}}
    assert view_of(VIEW, updates) == {("b", "1"): {"status": StoredCell("x", 4)}}


@pytest.mark.parametrize("column", ["assigned", "status"])
async def test_a_write_mends_a_ring(store: SqliteReplicas, leases: ShareLeases, column: str) -> None:
    updates = await leave_a_ring(store)
    updates.append(Update("ticket", "1", column, StoredCell("c", 9)))
    coordinator = ViewCoordinator(store, [VIEW], leases)
    async with asyncio.timeout(60):
        await coordinator.put(updates[-1], 2)
        await coordinator.settle()
        shown = {(key, base): row for key in "abc" for base, row in (await coordinator.get_view(VIEW, key)).items()}
    assert shown == view_of(VIEW, updates)


async def test_columns_that_are_written_at_once_are_seen_at_once(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator, session = ViewCoordinator(store, [VIEW], leases), StoreSession()
    rows = [("a", "x", "one", 1), ("b", "y", "two", 2), ("b", "z", "three", 3), ("a", "x", "old", 0)]
    updates: list[Update] = []
    for assigned, status, title, time in rows:
        values = {"status": status, "assigned": assigned, "title": title, "colour": "red"}
        some = [Update("ticket", "1", column, StoredCell(value, time)) for column, value in values.items()]
        await coordinator.put_columns(some, 2, session)
        updates += some
        wanted = view_of(VIEW, updates)
        for key in "ab":
            found = await coordinator.get_view(VIEW, key, session)
            assert found == {base: row for (one, base), row in wanted.items() if one == key}
    await coordinator.settle()


async def test_updates_that_cannot_be_written_at_once_are_refused(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator = ViewCoordinator(store, [VIEW], leases)
    one = Update("ticket", "1", "status", StoredCell("x", 1))
    for other in (one, Update("ticket", "2", "title", StoredCell("x", 1))):
        with pytest.raises(UpdatesRefusedError, match="writes one record, and each of its columns once"):
            await coordinator.put_columns([one, other], 2)
    assert await coordinator.get("ticket", "1", 2) == {}


async def test_a_read_in_a_session_waits_no_longer_than_it_may(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator, session = ViewCoordinator(store, [VIEW], leases), StoreSession()
    async with leases.hold(VIEW.name, "1", exclusive=False):
        await coordinator.put(Update("ticket", "1", "assigned", StoredCell("a", 1)), 2, session)
        with pytest.raises(ViewLateError, match=r"not propagated after 0\.05 s"):
            await coordinator.get_view(VIEW, "a", session, wait_s=0.05)
    assert await coordinator.get_view(VIEW, "a", session) == {"1": {}}


async def test_a_read_of_a_row_that_nobody_finishes_waits_no_longer_than_it_may(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    stamp = TurnStamps(1).stamp()
    half = {StoredColumn(NEXT, "1"): StoredCell(Pointer(1, row_of("a")).text, stamp)}
    half[StoredColumn("own from", "1")] = StoredCell(ROOT, stamp)
    await store.put(VIEW.name, row_of("a"), half, 3)
    coordinator = ViewCoordinator(store, [VIEW], leases)
    async with leases.hold(VIEW.name, "1", exclusive=False):
        with pytest.raises(ViewLateError):
            await coordinator.get_view(VIEW, "a", wait_s=0.05)
    assert await coordinator.get_view(VIEW, "a") == {"1": {}}
    assert StoredColumn(READY, "1") in await store.get(VIEW.name, row_of("a"), None, 2)


async def test_nobody_waits_for_the_slowest_replica(store: SqliteReplicas, paths: list[Path]) -> None:
    """Another process has one replica locked until the end: its time to wait for that is five seconds."""
    with sqlite3.connect(paths[1], isolation_level=None) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        column = StoredColumn("status")
        await store.put("ticket", "1", {column: StoredCell("x", 1)}, 2)
        assert await store.get("ticket", "1", None, 1) == {column: StoredCell("x", 1)}
        with sqlite3.connect(paths[0]) as first, sqlite3.connect(paths[2]) as last:
            counts = [file.execute("SELECT count(*) FROM cells").fetchone() for file in (first, last)]
        assert counts == [(1,), (1,)]
        locked.execute("ROLLBACK")
    locked.close()
    first.close()
    last.close()
