"""Sweeps over replicas in SQLite files: what dead coordinators left, and stale rows."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pequod_views.versioned import (
    QuorumError,
    RowLocks,
    SqliteReplicas,
    StoredCell,
    Swept,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.records import Cells
from pequod_views.versioned.rows import base_column

from tests.views.versioned.oracle import view_of
from tests.views.versioned.schedules import VIEW
from tests.views.versioned.updates import random_updates

BY_STATUS = VersionedView("by_status", "ticket", "status", ("assigned",))


class DeadError(Exception):
    """The process is gone."""


class DyingReplicas(SqliteReplicas):
    """A store whose user dies at a write."""

    puts_left: int | None = None

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        if self.puts_left is not None:
            self.puts_left -= 1
            if self.puts_left < 0:
                raise DeadError
        await super().put(table, key, cells, quorum)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}.db" for number in range(3)]


@pytest.fixture
def store(paths: list[Path]) -> Iterator[DyingReplicas]:
    store = DyingReplicas(paths)
    yield store
    store.close()


async def shown(coordinator: ViewCoordinator, view: VersionedView) -> dict[tuple[str, str], dict[str, StoredCell]]:
    keys = ("a", "b", "c", "x", "y")
    return {(key, base_key): row for key in keys for base_key, row in (await coordinator.get_view(view, key)).items()}


async def write(coordinator: ViewCoordinator, updates: Sequence[Update]) -> None:
    for update in updates:
        await coordinator.put(update, 2)
    await coordinator.settle()


@pytest.mark.parametrize("puts", range(12))
async def test_a_sweep_completes_what_a_coordinator_that_died_has_left(store: DyingReplicas, puts: int) -> None:
    updates = [
        Update("ticket", "1", "assigned", StoredCell("a", 1)),
        Update("ticket", "1", "status", StoredCell("x", 2)),
        Update("ticket", "1", "assigned", StoredCell("b", 3)),
    ]
    await write(ViewCoordinator(store, [VIEW, BY_STATUS], RowLocks()), updates[:2])
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    dying = ViewCoordinator(store, [VIEW, BY_STATUS], RowLocks())
    # The base, and then one or more writes of a propagation.
    store.puts_left = puts + 1
    await dying.put(updates[2], 2)
    await dying.settle()
    store.puts_left = None
    sweeper = ViewSweeper(store, [VIEW, BY_STATUS], RowLocks())
    swept = await sweeper.sweep()
    # Two views, eight writes with their marks.
    assert (swept.propagated > 0) == (puts < 8)
    assert (await sweeper.sweep()).propagated == 0, "it is marked"
    living = ViewCoordinator(store, [VIEW, BY_STATUS], RowLocks())
    for view in (VIEW, BY_STATUS):
        assert await shown(living, view) == view_of(view, updates)


def cell_count(path: Path) -> int:
    with sqlite3.connect(path) as file:
        (count,) = file.execute("SELECT count(*) FROM cells WHERE tbl = 'assigned_to'").fetchone()
    file.close()
    return int(count)


async def test_stale_rows_are_collected_and_removed_after_a_while(store: DyingReplicas, paths: list[Path]) -> None:
    now, locks = 0.0, RowLocks()
    coordinator = ViewCoordinator(store, [VIEW], locks)
    sweeper = ViewSweeper(store, [VIEW], locks, forget_s=60, clock=lambda: now)
    names = [*"abc", *map(str, range(40)), "a"]
    updates = [Update("ticket", "1", "assigned", StoredCell(name, 10 + at)) for at, name in enumerate(names)]
    await write(coordinator, updates)
    before = cell_count(paths[0])
    assert (await sweeper.sweep()).collected == 42
    # The root leads to the live row, and guesses of keys that were collected go by it.
    assert await shown(coordinator, VIEW) == {("a", "1"): {}}
    await write(coordinator, [Update("ticket", "1", "status", StoredCell("open", 99))])
    assert (await coordinator.get_view(VIEW, "a"))["1"] == {"status": StoredCell("open", 99)}
    assert (await sweeper.sweep()).forgotten == 0
    now = 61.0
    store.down = {2}
    assert (await sweeper.sweep()).forgotten == 0, "a replica might bring them back"
    store.down = set()
    assert (await sweeper.sweep()) == Swept(forgotten=42)
    assert cell_count(paths[0]) < before / 10
    # A key that was forgotten comes back as any other.
    await write(coordinator, [Update("ticket", "1", "assigned", StoredCell("b", 100))])
    assert await shown(coordinator, VIEW) == {("b", "1"): {"status": StoredCell("open", 99)}}


async def test_sweeps_beside_writes_change_nothing_that_is_read(store: DyingReplicas) -> None:
    rng, locks, now = random.Random(5), RowLocks(), 0.0
    coordinators = [ViewCoordinator(store, [VIEW, BY_STATUS], locks) for _ in range(2)]
    sweeper = ViewSweeper(store, [VIEW, BY_STATUS], locks, forget_s=0, clock=lambda: now)
    updates = random_updates(rng, 60, base_keys=3)
    for at in range(0, len(updates), 6):
        work = [rng.choice(coordinators).put(update, 2) for update in updates[at : at + 6]]
        await asyncio.gather(*work, sweeper.sweep())
    for coordinator in coordinators:
        await coordinator.settle()
    for _ in range(3):
        swept = await sweeper.sweep()
    assert swept == Swept()
    for view in (VIEW, BY_STATUS):
        assert await shown(coordinators[0], view) == view_of(view, updates)


async def test_marks_are_not_shown_with_a_base_record_and_too_few_replicas_are_said(store: DyingReplicas) -> None:
    coordinator = ViewCoordinator(store, [VIEW], RowLocks())
    await write(coordinator, [Update("ticket", "1", "assigned", StoredCell("a", 1))])
    assert await coordinator.get("ticket", "1", 2) == {base_column("assigned"): StoredCell("a", 1)}
    store.down = {0, 1}
    with pytest.raises(QuorumError):
        await ViewSweeper(store, [VIEW], RowLocks()).sweep()
