"""Coordinators over replicas in SQLite files, with replicas that are down and come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_views.versioned import (
    QuorumError,
    ShareLeases,
    SqliteReplicas,
    StoredCell,
    StoreSession,
    Update,
    VersionedView,
    ViewCoordinator,
)
from pequod_views.versioned.rows import NameRefusedError, base_column

from tests.views.versioned.conftest import NewLeases
from tests.views.versioned.oracle import view_of
from tests.views.versioned.updates import random_updates

VIEW = VersionedView("assigned_to", "ticket", "assigned", ("status", "title"))
BY_STATUS = VersionedView("by_status", "ticket", "status", ("assigned",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteReplicas]:
    store = SqliteReplicas([tmp_path / f"{number}.db" for number in range(3)])
    yield store
    store.close()


async def test_several_coordinators_and_views_while_replicas_go_and_return(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    rng = random.Random(3)
    coordinators = [ViewCoordinator(store, [VIEW, BY_STATUS], leases) for _ in range(3)]
    updates = random_updates(rng, 40, base_keys=4)

    async def write(update: Update) -> None:
        try:
            await rng.choice(coordinators).put(update, rng.choice([1, 2]))
        except QuorumError:
            assert len(store.down) >= 2

    for at in range(0, len(updates), 4):
        store.down = set(rng.sample(range(3), rng.choice([0, 1, 1, 2])))
        await asyncio.gather(*map(write, updates[at : at + 4]))
    store.down = set()
    for coordinator in coordinators:
        await coordinator.settle()
    await store.spread()
    for view in (VIEW, BY_STATUS):
        wanted = view_of(view, updates)
        assert wanted
        for key in ("a", "b", "c", "x", "y", "unknown"):
            store.down = {rng.randrange(3)}
            rows = await coordinators[0].get_view(view, key)
            assert rows == {base_key: row for (one, base_key), row in wanted.items() if one == key}


async def test_a_session_reads_its_own_writes(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator = ViewCoordinator(store, [VIEW], leases)
    for number, name in enumerate(["kim", "ray", "kim", None, "cy"]):
        session = StoreSession()
        await coordinator.put(Update("ticket", "1", "assigned", StoredCell(name, 2 * number)), 2, session)
        await coordinator.put(Update("ticket", "1", "status", StoredCell("open", 2 * number + 1)), 2, session)
        if name is not None:
            rows = await coordinator.get_view(VIEW, name, session)
            assert rows == {"1": {"status": StoredCell("open", 2 * number + 1)}}
    await coordinator.settle()
    assert await coordinator.get_view(VIEW, "kim") == {}
    assert (await coordinator.get("ticket", "1", 2))[base_column("assigned")] == StoredCell("cy", 8)


async def test_too_few_replicas_are_an_error_and_the_write_is_not_lost(
    store: SqliteReplicas, leases: ShareLeases
) -> None:
    coordinator = ViewCoordinator(store, [VIEW], leases)
    store.down = {0, 1, 2}
    with pytest.raises(QuorumError):
        await coordinator.put(Update("ticket", "1", "assigned", StoredCell("kim", 1)), 2)
    with pytest.raises(QuorumError):
        await coordinator.get_view(VIEW, "kim")
    store.down = set()
    await coordinator.settle()
    assert await coordinator.get_view(VIEW, "kim") == {"1": {}}
    assert (await coordinator.get("ticket", "1", 2))[base_column("assigned")] == StoredCell("kim", 1)


async def test_a_column_that_no_view_has_is_only_written(store: SqliteReplicas, leases: ShareLeases) -> None:
    coordinator = ViewCoordinator(store, [VIEW], leases)
    await coordinator.put(Update("ticket", "1", "colour", StoredCell("red", 1)), 3)
    assert await coordinator.get("ticket", "1", 1) == {base_column("colour"): StoredCell("red", 1)}


class ShortReplicas(SqliteReplicas):
    """A store whose keys have eight characters at most."""

    def check_record(self, table: str, key: str) -> None:
        if len(key) > 8:
            raise NameRefusedError("the key", key, f"it is too long for {table}")


async def test_a_view_key_whose_row_the_store_does_not_take_is_refused_before_anything_is_written(
    tmp_path: Path, new_leases: NewLeases
) -> None:
    store = ShortReplicas([tmp_path / f"{number}.db" for number in range(3)])
    leases = new_leases(store)
    coordinator = ViewCoordinator(store, [VIEW, BY_STATUS], leases)
    for key, column, value in (("1", "assigned", "robin"), ("1", "status", "opened"), ("1234", "assigned", "kim")):
        with pytest.raises(NameRefusedError, match="too long for"):
            await coordinator.put(Update("ticket", key, column, StoredCell(value, 1)), 2)
        assert (await store.keys("ticket", None, 10)).keys == []
    await coordinator.put(Update("ticket", "1", "assigned", StoredCell("kim", 1)), 2)
    await coordinator.put(Update("ticket", "1", "title", StoredCell("as long as it likes", 1)), 2)
    await coordinator.settle()
    assert list(await coordinator.get_view(VIEW, "kim")) == ["1"]
    await leases.close()
    store.close()
