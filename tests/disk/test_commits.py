"""Commits before answers: what answers show is on disk, all who wait share a sync, a failed disk ends the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from pequod_server.data.disk import Disk
from pequod_server.data.errors import LostDiskError
from pequod_server.data.library import RowsError
from pequod_server.data.loading import FolderLoading

from pequod.engine import Engine
from tests.disk.folders import contents, killed, until


async def opened(path: Path, fsync: str = "always") -> tuple[Engine, Disk]:
    """Open a folder with an engine."""
    engine = Engine()
    disk = Disk(path, engine, fsync)  # type: ignore[arg-type]
    await FolderLoading(engine, disk, keeps_joins=True).run()
    return engine, disk


class HeldThread:
    """A disk's thread that syncs when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[], None], Future[None]]] = []

    def submit(self, work: Callable[[], None]) -> Future[None]:
        self.asked.append((work, Future()))
        return self.asked[-1][1]

    async def sync(self) -> None:
        work, future = self.asked.pop(0)
        work()
        future.set_result(None)
        await asyncio.sleep(0.01)


async def test_what_an_answer_shows_is_on_disk_before_it_leaves(tmp_path: Path) -> None:
    engine, disk = await opened(tmp_path / "data")
    engine.put(b"a", b"1")
    await disk.settle(0)
    assert (disk.unsynced, disk.effects) == (0, {})
    assert disk.folder.note.synced == 1
    assert contents(killed(tmp_path / "data", tmp_path / "killed")) == {b"a": b"1"}
    await disk.end()


async def test_all_who_wait_at_a_time_share_one_sync_and_a_read_waits_for_what_it_shows(tmp_path: Path) -> None:
    engine, disk = await opened(tmp_path / "data")
    thread = HeldThread()
    own, disk._thread = disk._thread, thread  # type: ignore[assignment]
    writers = []
    for number in range(20):
        engine.put(b"k%d" % number, b"v")
        writers.append(asyncio.create_task(disk.settle(0)))
        await asyncio.sleep(0.001)
    reader = asyncio.create_task(disk.settle(0))
    await asyncio.sleep(0.001)
    await thread.sync()
    assert [one.done() for one in writers] == [True, *[False] * 19], "the first sync was asked for the first write"
    assert len(thread.asked) == 1
    await thread.sync()
    assert all(one.done() for one in writers) and reader.done()
    assert not thread.asked, "nobody waits"
    await disk.settle(0)
    disk._thread = own
    await disk.end()


async def test_hot_answers_wait_for_the_same_syncs(tmp_path: Path) -> None:
    engine, disk = await opened(tmp_path / "data")
    told = asyncio.Event()
    assert disk.settled(lambda _: told.set()), "nothing has changed"
    engine.put(b"a", b"1")
    assert not disk.settled(lambda _: told.set())
    assert not told.is_set()
    await told.wait()
    assert disk.unsynced == 0
    await disk.end()


@pytest.mark.parametrize("fsync", ["everysec", "never"])
async def test_answers_do_not_wait_with_the_other_settings(tmp_path: Path, fsync: str) -> None:
    engine, disk = await opened(tmp_path / "data", fsync)
    engine.put(b"a", b"1")
    await disk.settle(0)
    assert (disk.effects, disk.unsynced) == ({}, 1)
    assert contents(killed(tmp_path / "data", tmp_path / "killed")) == {b"a": b"1"}
    await until(lambda: fsync == "never" or not disk.unsynced)
    await disk.end()
    assert contents(tmp_path / "data") == {b"a": b"1"}


async def test_a_sync_that_fails_ends_the_server_and_answers_nobody(tmp_path: Path) -> None:
    engine, disk = await opened(tmp_path / "data")
    thread = HeldThread()
    own, disk._thread = disk._thread, thread  # type: ignore[assignment]
    engine.put(b"a", b"1")
    waiting = asyncio.create_task(disk.settle(0))
    await asyncio.sleep(0.001)
    thread.asked[0][1].set_exception(RowsError("IO error: While fdatasync: Input/output error"))
    assert disk.failed is not None
    with pytest.raises(LostDiskError, match=r"Input/output error\. The server ends"):
        await disk.failed
    assert not waiting.done()
    waiting.cancel()
    disk._thread = own
    await disk.end()


async def test_changes_of_a_call_that_answers_nobody_are_committed_all_the_same(tmp_path: Path) -> None:
    engine, disk = await opened(tmp_path / "data", "never")
    engine.put(b"a", b"1")
    await until(lambda: not disk.effects)
    assert contents(killed(tmp_path / "data", tmp_path / "killed")) == {b"a": b"1"}
    await disk.end()
