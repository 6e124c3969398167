"""How many requests a write takes, each of which goes to all replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pequod_views.versioned import SqliteReplicas, StoredCell, Update, ViewCoordinator
from pequod_views.versioned.records import Cells
from pequod_views.versioned.rows import undone

from tests.views.versioned.conftest import NewLeases
from tests.views.versioned.schedules import VIEW


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}.db" for number in range(3)]


class CountedReplicas(SqliteReplicas):
    """A store that counts requests, each of which goes to all replicas."""

    requests = 0

    async def get(self, *arguments: object) -> Cells:
        self.requests += 1
        return await super().get(*arguments)  # type: ignore[arg-type]

    async def put(self, *arguments: object) -> None:
        self.requests += 1
        await super().put(*arguments)  # type: ignore[arg-type]

    async def put_all(self, *arguments: object) -> None:
        self.requests += 1
        await super().put_all(*arguments)  # type: ignore[arg-type]


async def requests_of(store: CountedReplicas, coordinator: ViewCoordinator, update: Update) -> int:
    before = store.requests
    await coordinator.put(update, 2)
    await coordinator.settle()
    return store.requests - before


async def test_a_write_of_a_view_key_takes_four_requests(paths: list[Path], new_leases: NewLeases) -> None:
    store = CountedReplicas(paths, synchronous="OFF")
    leases = new_leases(store)
    coordinator = ViewCoordinator(store, [VIEW], leases)
    updates = [Update("ticket", "1", "assigned", StoredCell(name, time)) for time, name in enumerate("abcde", 1)]
    # The base, the new row, the pointer to it, its end with the mark. The first one also reads the base and the root.
    assert [await requests_of(store, coordinator, update) for update in updates[:3]] == [6, 4, 4]
    # The base, the row, and the mark.
    assert await requests_of(store, coordinator, Update("ticket", "1", "status", StoredCell("x", 9))) == 3
    # Another process may have moved the record: the live row is read again.
    await leases.close()
    assert [await requests_of(store, coordinator, update) for update in updates[3:]] == [5, 4]
    assert await coordinator.get_view(VIEW, "e") == {"1": {"status": StoredCell("x", 9)}}


async def test_a_write_takes_three_more_requests_for_each_view(paths: list[Path], new_leases: NewLeases) -> None:
    store = CountedReplicas(paths, synchronous="OFF")
    views = [VIEW, replace(VIEW, name="beside")]
    coordinator = ViewCoordinator(store, views, new_leases(store))
    updates = [Update("ticket", "1", "assigned", StoredCell(name, time)) for time, name in enumerate("abc", 1)]
    assert [await requests_of(store, coordinator, update) for update in updates] == [10, 7, 7]


class SeparateReplicas(CountedReplicas):
    """A store that takes one record at a time."""

    put_all = None  # type: ignore[assignment]


async def test_a_store_that_takes_one_record_at_a_time_gets_the_mark_afterwards(
    paths: list[Path], new_leases: NewLeases
) -> None:
    store = SeparateReplicas(paths, synchronous="OFF")
    coordinator = ViewCoordinator(store, [VIEW], new_leases(store))
    updates = [Update("ticket", "1", "assigned", StoredCell(name, time)) for time, name in enumerate("ab", 1)]
    assert [await requests_of(store, coordinator, update) for update in updates] == [7, 5]
    assert undone(VIEW, "1", await store.get("ticket", "1", None, 2)) == []
