"""Snapshots that a server saves by itself: how many are kept, what a failure does, and what a stop does to one."""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pequod_server import PequodServer, ServerConfig
from pequod_server.snapshots.files import read_snapshot, write_snapshot
from pequod_server.snapshots.locations import SnapshotFolder

from pequod import Client
from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import PequodError, SnapshotError
from tests.forked import ForkedServer

NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z\.snapshot")


def files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name != "lock")


def config(folder: Path, **settings: object) -> ServerConfig:
    return ServerConfig(listen="127.0.0.1:0", snapshot_folder=folder, **settings)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - files have no events
        await asyncio.sleep(0.005)


async def test_a_killed_server_starts_with_what_its_last_snapshot_has(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    flags = ("--snapshot-folder", str(folder), "--snapshot-every-s", "0.05", "--snapshot-keep", "3")
    with ForkedServer("--listen", "127.0.0.1:0", *flags) as server:
        with Client(server.target) as client:
            client.put("p|bob|1", "Hi")
            await until(lambda: len(files(folder)) == 3)
            first = files(folder)[0]
            await until(lambda: first not in files(folder))
            client.put("p|bob|2", "you")
            latest = files(folder)[-1]
            await until(lambda: sum(NAME.fullmatch(one) is not None and one > latest for one in files(folder)) >= 2)
        server.send_signal(signal.SIGKILL)
        server.wait(30)
    whole = [one for one in files(folder) if NAME.fullmatch(one)]
    assert 3 <= len(whole) <= 4, "the oldest goes once the new one is whole"
    with ForkedServer("--listen", "127.0.0.1:0", *flags[:2]) as server, Client(server.target) as client:
        assert client.scan() == [(b"p|bob|1", b"Hi"), (b"p|bob|2", b"you")]
        assert [one for one in files(folder) if "unfinished" in one] == []


async def test_a_save_that_fails_is_told_and_the_next_one_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    flags = ("--snapshot-folder", str(folder), "--snapshot-every-s", "0.05", "--metrics", "127.0.0.1:0")
    with ForkedServer("--listen", "127.0.0.1:0", *flags) as server:
        with Client(server.target) as client:
            client.multi_put({f"p|{number:06}": os.urandom(20) for number in range(1000)})
            await until(lambda: any(map(NAME.fullmatch, files(folder))))
            # As a disk that is full: no file may grow beyond this.
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
            said = server.said.readline()
            while "the snapshot is not saved" not in said:
                said = server.said.readline()
            assert "File too large" in said
            client.put("p|after", "served")
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            latest = max(filter(NAME.fullmatch, files(folder)))
            await until(lambda: max(filter(NAME.fullmatch, files(folder))) > latest)
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert all(NAME.fullmatch(one) for one in files(folder)), "nothing is left of the saves that failed"
    assert b"p|after" in read_snapshot(folder / files(folder)[-1]).rows.keys


async def metrics(server: PequodServer) -> dict[str, float]:
    async with ClientSession() as session, session.get(f"{server.instruments.url}/metrics") as reply:
        lines = [line.split() for line in (await reply.text()).splitlines() if line.startswith("pequod_snapshot")]
    return {line[0]: float(line[1]) for line in lines}


async def test_metrics_tell_the_age_and_the_failures(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    server = PequodServer(config(folder, snapshot_every_s=0.05, metrics="127.0.0.1:0"))
    await server.start()
    assert {"pequod_snapshot_age_seconds", "pequod_snapshot_every_seconds"} < (await metrics(server)).keys()
    await until(lambda: server.snapshots.saved_s is not None)
    folder.rename(tmp_path / "moved")
    await until(lambda: server.snapshots.failure_count >= 2)
    saved_s = server.snapshots.saved_s
    found = await metrics(server)
    assert found["pequod_snapshot_failures_total"] >= 2
    assert found["pequod_snapshot_every_seconds"] == 0.05
    assert found["pequod_snapshot_age_seconds"] > 0
    (tmp_path / "moved").rename(folder)
    await until(lambda: server.snapshots.saved_s != saved_s)
    await server.stop()
    # Without a schedule and a file, there is nothing whose age could be told.
    server = PequodServer(config(tmp_path / "other", metrics="127.0.0.1:0"))
    await server.start()
    assert (await metrics(server)) == {"pequod_snapshot_failures_total": 0.0}
    await server.stop()


async def test_a_file_alone_is_saved_regularly_too(tmp_path: Path) -> None:
    file = tmp_path / "file"
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", snapshot_file=file, snapshot_every_s=0.05))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        await client.put("p|bob", "Hi")
        await until(lambda: file.exists() and read_snapshot(file).rows.keys == [b"p|bob"])
    await server.stop()
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - nothing else is left


async def test_a_stop_ends_the_save_that_is_under_way_and_makes_one_of_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    server = PequodServer(config(folder, snapshot_every_s=0.01))
    port = await server.start()
    server.engine.put_all([b"p|%07d" % number for number in range(300_000)], [os.urandom(50)] * 300_000)
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        already = files(folder)
        await until(lambda: any("unfinished" in one for one in files(folder)))
        unfinished = next(one for one in files(folder) if "unfinished" in one)
        await client.put("p|the end", "")
        await server.stop()
    assert not {unfinished.removeprefix(".").removesuffix(".unfinished")} & {*files(folder)}
    assert len(files(folder)) == len(already) + 1
    assert read_snapshot(folder / files(folder)[-1]).rows.keys[-1] == b"p|the end"
    assert server.snapshots.failure_count == 0


async def test_a_snapshot_is_of_one_moment_while_clients_write(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    server = PequodServer(config(folder, snapshot_keep=50))
    port = await server.start()
    server.engine.put_all([b"p|%07d" % number for number in range(50_000)], [b"."] * 50_000)
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        rng = random.Random(0)

        async def write() -> None:
            for number in range(1_000_000):
                pair = rng.randrange(100)
                batch = client.batch()
                for key in (f"a|{pair:03}", f"p|{pair * 500:07}", f"z|{pair:03}"):
                    batch.put(key, str(number))
                await batch.send()

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write())
            saved = [await client.save_snapshot() for _ in range(10)]
            writing.cancel()
    await server.stop()
    assert len(files(folder)) == 11
    for one in saved:
        rows = read_snapshot(Path(one.path)).rows
        found = dict(zip(rows.keys, rows.values, strict=True))
        for pair in range(100):
            first = found.get(b"a|%03d" % pair)
            assert first == found.get(b"z|%03d" % pair), pair
            assert found[b"p|%07d" % (pair * 500)] == (first or b".")


async def test_a_folder_is_of_one_server(tmp_path: Path) -> None:
    first = PequodServer(config(tmp_path / "snapshots"))
    await first.start()
    with pytest.raises(SnapshotError, match="another server has it; give each a folder of its own"):
        await PequodServer(config(tmp_path / "snapshots")).start()
    await first.stop()
    second = PequodServer(config(tmp_path / "snapshots"))
    await second.start()
    await second.stop()


async def test_restore_takes_the_latest_file_and_a_damaged_one_is_refused_until_it_is_moved(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    server = PequodServer(config(folder))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(PequodError, match="none in the folder"):
            await client.restore_snapshot()
        for value in ("1", "2"):
            await client.put("p|bob", value)
            latest = Path((await client.save_snapshot()).path)
        await client.put("p|bob", "3")
        assert Path((await client.restore_snapshot()).path) == latest
        assert await client.get("p|bob") == b"2"
    await server.stop()
    latest = folder / files(folder)[-1]
    latest.write_bytes(latest.read_bytes()[:-9])
    with pytest.raises(SnapshotError, match=f"{latest.name}: it is damaged"):
        await PequodServer(config(folder)).start()
    latest.rename(tmp_path / "damaged")
    server = PequodServer(config(folder))
    await server.start()
    assert server.engine.base_rows() == Rows([b"p|bob"], [b"2"])
    await server.close()


def test_names_sort_by_time_though_the_clock_is_set_back(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path, 3)
    made = []
    for saved_s in (1000.5, 1000.5, 400.0, 2000.0, 1999.9994):
        path = folder.next(saved_s)
        write_snapshot(path, Rows([], []), ())
        made.append(path.name)
    assert made == sorted(made)
    assert made[:2] == ["19700101T001640.500Z.snapshot", "19700101T001640.501Z.snapshot"]
    (tmp_path / "a.snapshot").write_text("of somebody else")
    assert [one.name for one in folder.drop_oldest()] == made[:2]
    assert files(tmp_path) == [*made[2:], "a.snapshot"]
