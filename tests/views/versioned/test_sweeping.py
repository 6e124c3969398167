"""Sweeps over replicas in SQLite files: what dead coordinators left, and stale rows."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from pequod_views.versioned import (
    QuorumError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    Swept,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.algorithms import RowUnfinishedError
from pequod_views.versioned.checking import check_rows
from pequod_views.versioned.mending import collect
from pequod_views.versioned.propagation import Propagator
from pequod_views.versioned.records import Cells, Put
from pequod_views.versioned.rows import READY, ROOT, base_column, row_of
from pequod_views.versioned.shown import swept_rows
from pequod_views.versioned.turns import Turn

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
        self._die()
        await super().put(table, key, cells, quorum)

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        self._die()
        await super().put_all(puts, quorum)

    def _die(self) -> None:
        if self.puts_left is not None:
            self.puts_left -= 1
            if self.puts_left < 0:
                raise DeadError


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


@pytest.mark.parametrize("puts", range(8))
async def test_a_sweep_completes_what_a_coordinator_that_died_has_left(
    store: DyingReplicas, leases: ShareLeases, puts: int
) -> None:
    updates = [
        Update("ticket", "1", "assigned", StoredCell("a", 1)),
        Update("ticket", "1", "status", StoredCell("x", 2)),
        Update("ticket", "1", "assigned", StoredCell("b", 3)),
    ]
    await write(ViewCoordinator(store, [VIEW, BY_STATUS], leases), updates[:2])
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    dying = ViewCoordinator(store, [VIEW, BY_STATUS], leases)
    # The base, and then one or more writes of a propagation.
    store.puts_left = puts + 1
    await dying.put(updates[2], 2)
    await dying.settle()
    store.puts_left = None
    sweeper = ViewSweeper(store, [VIEW, BY_STATUS], leases)
    swept = await sweeper.sweep()
    # Two views: a row, a pointer and an end with its mark, and a row and a mark.
    assert (swept.propagated > 0) == (puts < 5)
    assert (await sweeper.sweep()).propagated == 0, "it is marked"
    living = ViewCoordinator(store, [VIEW, BY_STATUS], leases)
    for view in (VIEW, BY_STATUS):
        assert await shown(living, view) == view_of(view, updates)


async def left_half_made(store: DyingReplicas, leases: ShareLeases, puts: int = 2) -> list[Update]:
    """Have a coordinator die that has made the new row of a record, and not yet the pointer to it.

    Args:
        puts: Of the base, the row, the pointer, the end.
    """
    updates = [
        Update("ticket", "1", "assigned", StoredCell("a", 1)),
        Update("ticket", "1", "status", StoredCell("x", 2)),
        Update("ticket", "1", "assigned", StoredCell("b", 3)),
    ]
    await write(ViewCoordinator(store, [VIEW], leases), updates[:2])
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    dying = ViewCoordinator(store, [VIEW], leases)
    store.puts_left = puts
    await dying.put(updates[2], 2)
    await dying.settle()
    store.puts_left = None
    assert await unfinished(store) == ["1"]
    return updates


async def unfinished(store: SqliteReplicas) -> list[str]:
    record = row_of("b")
    return swept_rows(VIEW, record, await store.get(VIEW.name, record, None, 2)).unfinished


async def test_a_reader_finishes_a_row_that_was_left_half_made(store: DyingReplicas, leases: ShareLeases) -> None:
    updates = await left_half_made(store, leases)
    reader = ViewCoordinator(store, [VIEW], leases)
    async with asyncio.timeout(20):
        assert await reader.get_view(VIEW, "b") == {"1": {"status": StoredCell("x", 2)}}
    assert await shown(reader, VIEW) == view_of(VIEW, updates)
    assert await unfinished(store) == []


async def test_a_write_of_another_column_finishes_the_row_to_which_it_is_led(
    store: DyingReplicas, leases: ShareLeases
) -> None:
    updates = await left_half_made(store, leases)
    # Guessing by the base, it comes to the row that is half made.
    updates.append(Update("ticket", "1", "status", StoredCell("y", 4)))
    async with asyncio.timeout(20):
        await write(writer := ViewCoordinator(store, [VIEW], leases), updates[-1:])
    assert await unfinished(store) == []
    assert await shown(writer, VIEW) == view_of(VIEW, updates)


async def test_a_sweep_finishes_a_row_whose_update_has_been_replaced(store: DyingReplicas, leases: ShareLeases) -> None:
    """The base has a newer view key, which is propagated: nothing but the row itself tells of the older one."""
    updates = await left_half_made(store, leases)
    updates.append(newer := Update("ticket", "1", "assigned", StoredCell("c", 4)))
    # Its coordinator asked for the old view keys before the other one wrote.
    propagator = Propagator(store, leases)
    await propagator.persist([newer])
    await propagator.propagate(VIEW, [newer], [row_of("a")])
    await propagator.mark(VIEW, [newer])
    assert await unfinished(store) == ["1"]
    async with asyncio.timeout(20):
        swept = await ViewSweeper(store, [VIEW], leases).sweep()
        assert (swept.propagated, swept.finished) == (0, 1)
        assert await unfinished(store) == []
        assert await shown(ViewCoordinator(store, [VIEW], leases), VIEW) == view_of(VIEW, updates)


async def test_a_sweep_keeps_a_base_write_whose_update_it_propagates(store: DyingReplicas, leases: ShareLeases) -> None:
    """Its coordinator died when one replica had it."""
    update = Update("ticket", "1", "assigned", StoredCell("a", 1))
    store.down = {1, 2}
    await store.put(update.table, update.key, {base_column(update.column): update.cell}, 1)
    store.down = {2}
    assert await ViewSweeper(store, [VIEW], leases).sweep() == Swept(propagated=1, replicas_away=1)
    store.down = {0}
    coordinator = ViewCoordinator(store, [VIEW], leases)
    assert await shown(coordinator, VIEW) == view_of(VIEW, [update])
    assert await coordinator.get("ticket", "1", 2) == {base_column("assigned"): update.cell}


@pytest.mark.parametrize("lone", range(3))
async def test_a_sweep_finds_what_one_replica_alone_has_and_says_when_it_did_not_ask_it(
    store: DyingReplicas, leases: ShareLeases, lone: int
) -> None:
    update = Update("ticket", "1", "assigned", StoredCell("a", 1))
    store.down = {0, 1, 2} - {lone}
    await store.put(update.table, update.key, {base_column(update.column): update.cell}, 1)
    store.down = {lone}
    assert await ViewSweeper(store, [VIEW], leases).sweep() == Swept(replicas_away=1)
    assert (await check_rows(store, [VIEW])).replicas_away == 1
    store.down = set()
    assert await ViewSweeper(store, [VIEW], leases).sweep() == Swept(propagated=1)
    checked = await check_rows(store, [VIEW])
    assert (checked.records, checked.replicas_away, checked.wrong) == (1, 0, [])


async def test_a_collector_finishes_the_row_to_which_a_stale_one_leads(
    store: DyingReplicas, leases: ShareLeases
) -> None:
    updates = await left_half_made(store, leases, puts=3)
    async with asyncio.timeout(20):
        await Propagator(store, leases).alone(VIEW, "1", partial(collect, VIEW, "1", row_of("a"), 2))
    assert await unfinished(store) == []
    cells = await store.get(VIEW.name, row_of("a"), None, 2)
    assert list(swept_rows(VIEW, row_of("a"), cells).collected) == ["1"]
    assert await shown(ViewCoordinator(store, [VIEW], leases), VIEW) == view_of(VIEW, updates)


@pytest.mark.parametrize("is_collecting", [False, True], ids=["heal", "collect"])
async def test_repairs_and_collections_have_a_record_alone(
    store: DyingReplicas, is_collecting: bool, leases: ShareLeases
) -> None:
    await left_half_made(store, leases, puts=3)
    propagator = Propagator(store, leases)
    async with leases.hold(VIEW.name, "1", exclusive=False):
        if is_collecting:
            steps = partial(collect, VIEW, "1", row_of("a"), 2)
            work = asyncio.create_task(propagator.alone(VIEW, "1", steps))
        else:
            work = asyncio.create_task(propagator.mend(VIEW, RowUnfinishedError(VIEW.name, "1", row_of("b"))))
        done, _ = await asyncio.wait([work], timeout=0.3)
        assert not done
        assert await unfinished(store) == ["1"]
    await asyncio.wait_for(work, 20)
    assert await unfinished(store) == []


class FailingReplicas(SqliteReplicas):
    """A store of which too few replicas answer once, at the end of a propagation."""

    failures_left = 1

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        if self.failures_left:
            assert [column.name for column, _ in puts[0].cells] == [READY]
            self.failures_left -= 1
            raise QuorumError(quorum, 1)
        await super().put_all(puts, quorum)


class CountedLeases(ShareLeases):
    """Leases that count how often a record was held."""

    count = 0

    @asynccontextmanager
    async def hold(self, view: str, base_key: str, *, exclusive: bool) -> AsyncIterator[Turn]:
        self.count += 1
        async with super().hold(view, base_key, exclusive=exclusive) as turn:
            yield turn


async def test_a_propagation_keeps_its_turn_until_its_row_is_whole(paths: list[Path]) -> None:
    store = FailingReplicas(paths)
    leases = CountedLeases(store)
    propagator, ended = Propagator(store, leases), list[str | None]()
    updates = [Update("ticket", "1", "assigned", StoredCell(name, at)) for at, name in enumerate("ab", 1)]

    async def propagate(update: Update) -> None:
        await propagator.persist([update])
        await propagator.propagate(VIEW, [update], [ROOT])
        ended.append(update.cell.value)

    await asyncio.gather(*map(propagate, updates))
    assert (ended, store.failures_left) == (["a", "b"], 0)
    assert leases.count == 2, "nobody else could have come between the request that failed and its end"
    assert await shown(ViewCoordinator(store, [VIEW], leases), VIEW) == view_of(VIEW, updates)
    await leases.close()
    store.close()


def cell_count(path: Path) -> int:
    with sqlite3.connect(path) as file:
        (count,) = file.execute("SELECT count(*) FROM cells WHERE tbl = 'assigned_to'").fetchone()
    file.close()
    return int(count)


async def test_stale_rows_are_collected_and_removed_after_a_while(
    store: DyingReplicas, paths: list[Path], leases: ShareLeases
) -> None:
    now = 1000.0
    coordinator = ViewCoordinator(store, [VIEW], leases)
    sweeper = ViewSweeper(store, [VIEW], leases, forget_s=60, clock=lambda: now)
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
    now += 61.0
    store.down = {2}
    assert (await sweeper.sweep()).forgotten == 0, "a replica might bring them back"
    store.down = set()
    assert (await sweeper.sweep()) == Swept(forgotten=42)
    assert cell_count(paths[0]) < before / 10
    # A key that was forgotten comes back as any other.
    await write(coordinator, [Update("ticket", "1", "assigned", StoredCell("b", 100))])
    assert await shown(coordinator, VIEW) == {("b", "1"): {"status": StoredCell("open", 99)}}


async def test_sweeps_beside_writes_change_nothing_that_is_read(store: DyingReplicas, leases: ShareLeases) -> None:
    rng, now = random.Random(5), 0.0
    coordinators = [ViewCoordinator(store, [VIEW, BY_STATUS], leases) for _ in range(2)]
    sweeper = ViewSweeper(store, [VIEW, BY_STATUS], leases, forget_s=0, clock=lambda: now)
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


async def test_marks_are_not_shown_with_a_base_record_and_too_few_replicas_are_said(
    store: DyingReplicas, leases: ShareLeases
) -> None:
    coordinator = ViewCoordinator(store, [VIEW], leases)
    await write(coordinator, [Update("ticket", "1", "assigned", StoredCell("a", 1))])
    assert await coordinator.get("ticket", "1", 2) == {base_column("assigned"): StoredCell("a", 1)}
    store.down = {0, 1}
    with pytest.raises(QuorumError):
        await ViewSweeper(store, [VIEW], leases).sweep()
