"""A record store of three Redis servers: cells, quorums, registers; servers that are stopped, killed or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pequod_views.versioned import QuorumError, StoredCell, StoredColumn, Update, ViewCoordinator, ViewSweeper

from tests.views.versioned.conftest import NewLeases
from tests.views.versioned.masters import run
from tests.views.versioned.oracle import view_of
from tests.views.versioned.redis_masters import Redis
from tests.views.versioned.schedules import VIEW
from tests.views.versioned.servers import RedisServers, skip_without_redis

skip_without_redis()

from pequod_views.versioned.redis_store import RedisReplicas  # noqa: E402

A, B = StoredColumn("a"), StoredColumn("b 1", "2 c")
#: Far longer than a test may take, so a wait for a server that is stopped shows.
LONG_S = 3600.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[RedisServers]:
    with RedisServers(tmp_path) as servers:
        yield servers


@pytest.fixture
async def store(servers: RedisServers) -> AsyncIterator[RedisReplicas]:
    store = RedisReplicas(servers.urls)
    yield store
    await store.close()


async def test_the_newest_of_each_cell_is_read(store: RedisReplicas) -> None:
    big = 1 << 62
    await store.put("t", "k", {A: StoredCell("x", big + 1), B: StoredCell(None, 7)}, 3)
    # The smaller by one, far beyond what a double keeps; then the same timestamp with a value that is larger.
    await store.put("t", "k", {A: StoredCell("z", big), B: StoredCell("", 7)}, 3)
    assert await store.get("t", "k", None, 3) == {A: StoredCell("x", big + 1), B: StoredCell("", 7)}
    await store.put("t", "k", {A: StoredCell("é", big + 1), B: StoredCell(None, 7)}, 3)
    assert await store.get("t", "k", [A], 1) == {A: StoredCell("é", big + 1)}
    assert await store.get("t", "k", [StoredColumn("b"), StoredColumn("b 1", "2")], 3) == {}


async def test_keys_come_in_order_and_records_are_forgotten_where_nothing_newer_is(store: RedisReplicas) -> None:
    names = ["", "a", "a b", "b", "é", "\0"]
    for name in names:
        await store.put("t", name, {A: StoredCell("x", 5)}, 3)
    await store.put("t u", "other", {A: StoredCell("x", 5)}, 3)
    assert (await store.keys("t", None, 100)).keys == sorted(names)
    assert (await store.keys("t", "a", 2)).keys == ["a b", "b"]
    await store.forget("t", "a", {A: StoredCell("x", 4)}, 3)
    assert await store.get("t", "a", None, 3) == {A: StoredCell("x", 5)}
    await store.forget("t", "a", {A: StoredCell("x", 5)}, 3)
    assert await store.get("t", "a", None, 3) == {}
    assert (await store.keys("t", None, 100)).keys == sorted({*names} - {"a"})


async def test_a_register_is_set_once(store: RedisReplicas, servers: RedisServers) -> None:
    others = [RedisReplicas(servers.urls) for _ in range(3)]
    found = await asyncio.gather(*(other.swap("r", None, f"{at}") for at, other in enumerate(others)))
    assert len(set(found)) == 1
    servers.kill(0)
    assert await store.swap("r", found[0], "") == ""
    assert await store.swap("r", None, "x") == ""
    servers.start(0)
    servers.kill(1)
    assert await store.swap("r", "", None) is None
    for other in others:
        await other.close()
    servers.kill(2)
    with pytest.raises(QuorumError):
        await store.swap("r", None, "y")


@pytest.mark.parametrize("stopped", range(3))
async def test_nobody_waits_for_a_server_that_is_stopped(servers: RedisServers, stopped: int) -> None:
    store = RedisReplicas(servers.urls, timeout_s=LONG_S)
    servers.stop(stopped)
    for quorum in (1, 2):
        await store.put("t", "k", {A: StoredCell("x", quorum)}, quorum)
        assert (await store.get("t", "k", None, 2))[A] == StoredCell("x", quorum)
    assert await store.swap("r", None, "x") == "x"
    waiting = asyncio.create_task(store.put("t", "k", {A: StoredCell("x", 3)}, 3))
    await store.put("t", "k", {A: StoredCell("x", 4)}, 2)
    assert not waiting.done()
    servers.go_on(stopped)
    await waiting
    await store.close()


async def test_a_server_that_was_killed_keeps_its_cells_and_gets_what_it_missed(
    store: RedisReplicas, servers: RedisServers
) -> None:
    await store.put("t", "k", {A: StoredCell("x", 1)}, 3)
    servers.kill(1)
    await store.put("t", "k", {B: StoredCell("y", 2)}, 2)
    with pytest.raises(QuorumError):
        await store.put("t", "l", {A: StoredCell("z", 3)}, 3)
    servers.start(1)
    await store.spread("t")
    store.down = {0, 2}
    assert await store.get("t", "k", None, 1) == {A: StoredCell("x", 1), B: StoredCell("y", 2)}
    assert await store.get("t", "l", None, 1) == {A: StoredCell("z", 3)}


async def test_views_are_kept_over_it(store: RedisReplicas, servers: RedisServers, new_leases: NewLeases) -> None:
    leases = new_leases(store)
    coordinator = ViewCoordinator(store, [VIEW], leases)
    updates = [Update("ticket", "1", "assigned", StoredCell(name, at)) for at, name in enumerate("abca", 1)]
    for update in updates:
        await coordinator.put(update, 2)
    await coordinator.settle()
    shown = {(key, base): row for key in "abc" for base, row in (await coordinator.get_view(VIEW, key)).items()}
    assert shown == view_of(VIEW, updates)
    assert (await ViewSweeper(store, [VIEW], leases, forget_s=0.0).sweep()).collected == 2


def test_processes_and_servers_that_are_killed_and_stopped_leave_the_view_of_the_base(
    tmp_path: Path, servers: RedisServers
) -> None:
    assert run(2, Redis(tmp_path, servers, 2)) == []
