"""A snapshot of a server over several groups: a position of each, and what is worth something of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import FakeStore, KeyRange
from pequod_server.database.databases import HomeGroup
from pequod_server.snapshots.files import read_snapshot

from pequod.client import AsyncClient
from tests.groups.pair import FOLLOWING, JOINS, groups, store


def stores() -> dict[str, FakeStore]:
    """Return both stores with rows."""
    found = {name: store(name) for name in "AB"}
    found["A"].commit({**FOLLOWING, b"p|bob|0100": b"Hi"})
    found["B"].commit({b"p|zoe|0110": b"Ho"})
    return found


@asynccontextmanager
async def serving(path: Path, owners: list[HomeGroup]) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    """Serve groups, from the snapshot if there is one; save one at the end."""
    config = ServerConfig(listen="127.0.0.1:0", joins=JOINS, snapshot_file=path)
    server = PequodServer(config, groups=owners)
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with AsyncClient(target, timeout_s=100.0) as client:
            yield server, client
    finally:
        await server.stop()


def again(one: FakeStore) -> FakeStore:
    """Return a store of the same database, which no server has closed."""
    other = store(one.name)
    for changes in one._log:
        other.commit({change.key: change.value for change in changes})
    other.loads.clear()
    return other


async def saved(path: Path) -> dict[str, FakeStore]:
    """Save what a timeline needs of both groups."""
    found = stores()
    async with serving(path, groups(found)) as (_, client):
        assert len(await client.scan("t|ann|", "t|ann}")) == 2
    return {name: again(one) for name, one in found.items()}


async def timeline(client: AsyncClient) -> list[bytes]:
    return [value for _, value in await client.scan("t|ann|", "t|ann}")]


async def test_a_start_takes_what_is_loaded_of_each_group_and_what_each_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    found = await saved(path)
    assert [(part.name, part.position) for part in read_snapshot(path).backed] == [("A", 1), ("B", 1)]
    found["B"].commit({b"p|zoe|0120": b"since"})
    # A fake whose log goes on has everything read again; so only A's part stays warm.
    async with serving(path, groups(found)) as (_, client):
        assert await timeline(client) == [b"Hi", b"Ho", b"since"]
        assert found["A"].loads == []


async def test_a_group_that_cannot_tell_what_it_changed_loses_its_part_alone(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    found = await saved(path)
    found["B"].name = "restored from a backup"
    async with serving(path, groups(found)) as (_, client):
        assert await timeline(client) == [b"Hi", b"Ho"]
        assert (found["A"].loads, len(found["B"].loads)) == ([], 1)


async def test_ranges_that_have_moved_since_are_not_taken_from_their_former_owner(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    found = await saved(path)
    found["B"].commit({b"p|bob|0100": b"B's"})
    later = [
        HomeGroup("A", found["A"], (KeyRange(b"s|", b"s}"),)),
        HomeGroup("B", found["B"], (KeyRange(b"p|", b"p}"), KeyRange(b"v|", b"v}"))),
    ]
    async with serving(path, later) as (_, client):
        assert await timeline(client) == [b"B's", b"Ho"]


async def test_a_group_without_an_answer_is_left_out_of_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    found = stores()
    async with serving(path, groups(found)) as (server, client):
        await timeline(client)
        found["B"].fail("position", times=1)
        await server.snapshots.save()
        snapshot = read_snapshot(path)
        assert [part.name for part in snapshot.backed] == ["A"]
        assert b"p|zoe|0110" not in snapshot.rows.keys
        assert b"p|bob|0100" in snapshot.rows.keys


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_a_start_that_is_cut_off_closes_all_stores(tmp_path: Path, turns: int) -> None:
    found = stores()
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"), groups=groups(found))
    async with found["B"].held("check"):
        starting = asyncio.create_task(server.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await server.close()
    assert [one.status.state for one in found.values()] == ["closed", "closed"]
