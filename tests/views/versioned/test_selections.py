"""Selection views: a record that does not meet the conditions has no row, whatever the order of propagations was."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pequod_views.versioned import (
    ColumnCondition,
    RowMisplacedError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    StoreSession,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned import algorithms as algorithms_module
from pequod_views.versioned.algorithms import get_view, propagate
from pequod_views.versioned.checking import check_rows
from pequod_views.versioned.mending import heal, mend
from pequod_views.versioned.rows import ROOT, base_column, row_of, view_column

from tests.views.versioned.oracle import rows_in, seen_in, view_of
from tests.views.versioned.replicas import ThreeReplicas
from tests.views.versioned.schedules import SELECTIONS, simulate
from tests.views.versioned.test_propagation import explore

OPEN = VersionedView("open", "ticket", "assigned", ("title",), (ColumnCondition.of('status = "x"'),))
#: Two columns decide, beside the key.
PAIR = VersionedView(
    "pair", "ticket", "assigned", ("status", "title"), tuple(map(ColumnCondition.of, ["status exists", 'title < "y"']))
)
KINDS = [("assigned", "a"), ("status", "x"), ("status", "z"), ("assigned", None)]


def update(column: str, value: str | None, time: int) -> Update:
    return Update("ticket", "t", column, StoredCell(value, time))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteReplicas]:
    store = SqliteReplicas([tmp_path / f"{number}.db" for number in range(3)], synchronous="OFF")
    yield store
    store.close()


@pytest.mark.parametrize("first", KINDS, ids=lambda kind: f"{kind[0]}={kind[1]}")
def test_all_interleavings_of_three_updates(first: tuple[str, str | None]) -> None:
    for others in itertools.product(KINDS[:3], repeat=2):
        kinds = first, *others
        assert explore([update(*kind, 10 + at) for at, kind in enumerate(kinds)], OPEN) > 10


@pytest.mark.parametrize("view", SELECTIONS, ids=lambda view: str(len(view.where)))
def test_random_schedules_with_losses_and_deaths(view: VersionedView) -> None:
    for seed in range(300):
        simulate(seed, view)


def test_a_live_row_that_lacks_a_column_that_decides_makes_views_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionedView, "kept", property(lambda view: view.columns))
    with pytest.raises(AssertionError):
        for seed in range(50):
            simulate(seed, OPEN)


async def test_a_record_leaves_and_comes_back(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator, session = ViewCoordinator(store, [OPEN], leases), StoreSession()
    written: list[Update] = []
    for time, (column, value) in enumerate(
        [("status", "x"), ("assigned", "a"), ("title", "one"), ("status", "z"), ("title", "two"), ("assigned", "b"),
         ("status", "x"), ("assigned", "a"), ("status", None), ("assigned", None), ("status", "x"), ("assigned", "a")],
        start=1,
    ):  # fmt: skip
        written.append(update(column, value, time))
        await coordinator.put(written[-1], 2, session)
        wanted = view_of(OPEN, written)
        for key in "ab":
            found = await coordinator.get_view(OPEN, key, session)
            assert found == {base_key: row for (place, base_key), row in wanted.items() if place == key}
    assert found == {} and wanted == {("a", "t"): {"title": StoredCell("two", 5)}}
    # An older write of the column that decides has no say, and neither has an older view key.
    for late in (update("status", "z", 8), update("assigned", "b", 9)):
        await coordinator.put(late, 2, session)
    assert await coordinator.get_view(OPEN, "a", session) == {"t": {"title": StoredCell("two", 5)}}
    swept = await ViewSweeper(store, [OPEN], leases).sweep()
    assert swept.collected > 0
    assert (await check_rows(store, [OPEN])).wrong == []


async def test_columns_that_are_written_at_once_decide_at_once(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator, session = ViewCoordinator(store, [PAIR], leases), StoreSession()
    columns: dict[str, str | None] = {"assigned": "a", "status": "x", "title": "x"}
    away: list[dict[str, str | None]] = [{"title": "y", "assigned": "b"}, {"title": "a", "status": None}]
    for time, changes in enumerate([columns, *away, columns], 1):
        updates = [update(column, value, time) for column, value in changes.items()]
        await coordinator.put_columns(updates, 2, session)
        found = {key: await coordinator.get_view(PAIR, key, session) for key in "ab"}
        there = {"a": {"t": {name: StoredCell("x", time) for name in PAIR.columns}}, "b": {}}
        assert found == (there if time in {1, 4} else {"a": {}, "b": {}})


async def test_a_record_that_was_never_in_the_view_has_no_row_of_a_key(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    coordinator = ViewCoordinator(store, [OPEN], leases)
    for time, key in enumerate("abc"):
        await coordinator.put(update("assigned", key, time), 2)
    await coordinator.settle()
    assert (await store.keys(OPEN.name, None, 10)).keys == ["root t"]


async def test_a_sweep_propagates_what_decides_and_a_check_finds_what_does_not_belong(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    sweeper = ViewSweeper(store, [OPEN], leases)
    for key, status in (("1", "x"), ("2", "z")):
        cells = {base_column("assigned"): StoredCell("a", 1), base_column("status"): StoredCell(status, 2)}
        await store.put("ticket", key, cells, 3)
    assert (await check_rows(store, [OPEN])).pending == 2
    assert (await sweeper.sweep()).propagated == 4
    checked = await check_rows(store, [OPEN])
    assert (checked.records, checked.pending, checked.wrong) == (2, 0, [])
    # By hand, with a mark as if it had been propagated.
    mark = base_column("status")._replace(name="done status", base_key=OPEN.name)
    await store.put("ticket", "1", {base_column("status"): StoredCell("z", 3), mark: StoredCell("", 3)}, 3)
    await store.put("ticket", "2", {base_column("status"): StoredCell("x", 3), mark: StoredCell("", 3)}, 3)
    wrong = sorted((await check_rows(store, [OPEN])).wrong)
    assert "'1' is shown at 'a', and does not meet the view's conditions" in wrong[0]
    assert "'2' is at 'a' in the base, and the view has no row for it" in wrong[1]


def misplaced() -> tuple[ThreeReplicas, list[Update]]:
    """Return replicas of which one has a cell that a dead coordinator left, by which the record is not in the view."""
    store = ThreeReplicas()
    done = [update("assigned", "a", 1), update("status", "x", 2), update("title", "a", 3)]
    for one in done:
        assert store.carry_out(propagate(PAIR, [one], ROOT, 2, store.turn()), [0, 1, 2])
    store.replicas[2]["pair", row_of("a")][view_column("title", "t")] = StoredCell("z", 9)
    return store, done


@pytest.mark.parametrize("seen", [[0, 2], [1, 2], [0, 1, 2]])
def test_a_reader_mends_a_row_by_a_cell_that_only_it_sees(seen: Sequence[int]) -> None:
    store, done = misplaced()
    steps = get_view(PAIR, "a", 2)
    with pytest.raises(RowMisplacedError) as caught:
        store.carry_out(steps, seen)
    # The repair asks replicas that do not have the cell.
    store.carry_out(mend(PAIR, caught.value, 2, store.turn()), [0, 1])
    store.spread()
    assert seen_in(PAIR, store.records()) == view_of(PAIR, [*done, update("title", "z", 9)]) == {}
    # A newer title brings it back.
    again = update("title", "c", 12)
    assert store.carry_out(propagate(PAIR, [again], ROOT, 2, store.turn()), [0, 1])
    assert rows_in(PAIR, store.records()) == (view_of(PAIR, [*done, again]), [])


@pytest.mark.parametrize("dies_at_put", [1, 2, 3])
@pytest.mark.parametrize("reached", [[0, 1], [1, 2]])
def test_a_row_that_a_dead_coordinator_began_gives_way_to_what_was_propagated_since(
    dies_at_put: int, reached: list[int]
) -> None:
    store = ThreeReplicas()
    done = [update("assigned", "a", 1), update("status", "x", 2)]
    for one in done:
        assert store.carry_out(propagate(OPEN, [one], ROOT, 2, store.turn()), [0, 1, 2])
    dead = update("assigned", "b", 9)
    store.carry_out(propagate(OPEN, [dead], row_of("a"), 2, store.turn()), [0, 1, 2], dies_at_put=dies_at_put)
    # It leaves the view, by a column that is not the key.
    done.append(update("status", "z", 5))
    while True:
        try:
            store.carry_out(propagate(OPEN, [done[-1]], ROOT, 2, store.turn()), reached)
            break
        except algorithms_module.RowBrokenError as broken:
            store.carry_out(mend(OPEN, broken, 2, store.turn()), reached)
    store.carry_out(heal(OPEN, "t", row_of("b"), 2, store.turn()), [0, 2])
    store.spread()
    assert seen_in(OPEN, store.records()) == {}
    done.append(update("status", "x", 10))
    store.carry_out(propagate(OPEN, [done[-1]], ROOT, 2, store.turn()), reached)
    found = seen_in(OPEN, store.records())
    assert found in (view_of(OPEN, done), view_of(OPEN, [*done, dead]))
    assert len(found) == 1


def test_views_with_and_without_conditions_follow_these_columns() -> None:
    plain = replace(OPEN, where=())
    assert (plain.followed, plain.kept, plain.deciders) == (("assigned", "title"), ("title",), ("assigned",))
    assert (OPEN.followed, OPEN.deciders) == (("assigned", "title", "status"), ("assigned", "status"))
    assert OPEN.kept == OPEN.followed
