"""A disk without room: writes are refused by name, reads go on, and the server goes on by itself when there is room."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pequod_server.data.disk import SPARE_BYTES, Disk
from pequod_server.data.errors import MAKE_ROOM, FolderError
from pequod_server.data.loading import FolderLoading
from pequod_server.setting_kinds import MIB

from pequod.client import AsyncClient
from pequod.engine import Engine
from pequod.errors import DiskFullError
from tests.disk.folders import contents, served, until

_SIZE: int = SPARE_BYTES + 64 * MIB


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system takes root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, left_bytes: int = 0) -> Path:
    """Take the room of a disk but for ``left_bytes``; return the file that has it."""
    file = place / "ballast"
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while (room_bytes := free_bytes(place) - left_bytes) > 0:
            ballast.write(bytes(min(room_bytes, MIB // 4)))
    return file


def free_bytes(place: Path) -> int:
    """Return the room that a disk has."""
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


async def put_once_it_is_taken(client: AsyncClient, key: str, value: str) -> None:
    """Put a row as soon as writes are taken again."""
    while True:
        try:
            await client.put(key, value)
            return
        except DiskFullError:
            await asyncio.sleep(0.1)


async def refused(client: AsyncClient) -> DiskFullError:
    """Write until a write is refused."""
    try:
        while True:
            await client.put("a", "other")
            await client.put("a", "1")
    except DiskFullError as error:
        return error


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_disk_that_fills_up_refuses_writes_and_goes_on_when_there_is_room(small_disk: Path, fsync: str) -> None:
    folder = small_disk / "data"
    async with served(folder, fsync=fsync) as (_, client):
        await client.put("a", "1")
        ballast = fill(small_disk, left_bytes=SPARE_BYTES // 2)
        error = await refused(client)
        assert (error.folder, error.free_bytes < SPARE_BYTES) == (str(folder), True)
        assert await client.get("a") in (b"1", b"other"), "reads go on"
        ballast.unlink()
        await put_once_it_is_taken(client, "b", "2")
    assert contents(folder).keys() == {b"a", b"b"}


async def test_a_commit_that_finds_no_room_is_undone_and_the_next_start_has_all_that_was_acknowledged(
    small_disk: Path,
) -> None:
    folder, engine = small_disk / "data", Engine()
    disk = Disk(folder, engine, "always")
    await FolderLoading(engine, disk, keeps_joins=True).run()
    for number in range(50):
        engine.put(b"p|%02d" % number, b"kept")
    await disk.settle(disk.undone_count)
    history, before = disk.history, engine.base_rows()
    ballast, undone_count, told = fill(small_disk), disk.undone_count, list[DiskFullError | None]()
    engine.put(b"p|01", bytes(MIB))
    engine.put(b"p|new", b"lost")
    engine.remove(b"p|02")
    assert not disk.settled(told.append)
    with pytest.raises(DiskFullError):
        await disk.settle(undone_count)
    assert [type(error) for error in told] == [DiskFullError], "hot answers never leave"
    assert engine.base_rows() == before, "nothing of it is seen"
    with pytest.raises(DiskFullError):
        engine.put(b"p|03", b"refused")
    with pytest.raises(DiskFullError):
        # A call that wrote before, and answers now.
        await disk.settle(undone_count)
    await disk.settle(disk.undone_count)
    assert disk.history.ends == {history.timeline: 50}, "tokens of what was undone are lost"
    ballast.unlink()
    await until(lambda: not disk.is_full)
    engine.put(b"p|03", b"taken")
    await disk.settle(disk.undone_count)
    rows, after = engine.base_rows(), disk.history
    await disk.end()
    assert contents(folder) == dict(zip(rows.keys, rows.values, strict=True))
    again = Engine()
    reopened = Disk(folder, again, "never")
    await FolderLoading(again, reopened, keeps_joins=True).run()
    assert (reopened.history, again.base_rows()) == (after, rows)
    await reopened.end()


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_start_on_a_full_disk_says_what_to_do_and_changes_nothing(small_disk: Path, is_new: bool) -> None:
    folder, refused_count = small_disk / "data", 0
    if not is_new:
        async with served(folder) as (_, client):
            await client.put("a", "1")
    for left_bytes in (0, 4096, 3 * 4096, 8 * 4096, MIB):
        ballast = fill(small_disk, left_bytes)
        try:
            async with served(folder):
                pass
        except FolderError as error:
            refused_count += 1
            assert MAKE_ROOM in str(error), str(error)
        ballast.unlink()
    assert refused_count
    async with served(folder) as (_, client):
        assert await client.get("a") == (None if is_new else b"1")
