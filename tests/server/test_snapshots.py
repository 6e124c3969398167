"""Snapshots of a server without a database: what comes back, and what happens to files that are not right."""

from __future__ import annotations

import asyncio
import gzip
import math
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.running import run
from pequod_server.snapshots.files import read_snapshot, write_snapshot

from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import PequodError, SnapshotError

KARMA = "karma|<author> = count vote|<author>|<voter>"


@asynccontextmanager
async def serving(path: Path | None, **settings: object) -> AsyncIterator[AsyncClient]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", snapshot_file=path, **settings))  # type: ignore[arg-type]
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        await server.stop()
        server.engine._check()


async def test_a_server_that_is_stopped_starts_with_what_clients_wrote(tmp_path: Path) -> None:
    path = tmp_path / "pequod.snapshot"
    rows: dict[str, str | bytes] = {
        "a": "loose",
        "p|bob|1": "Hi",
        "vote|ann|bob": "",
        "vote|ann|liz": "",
        "x|": b"\xff\0",
    }
    async with serving(path, joins=KARMA) as client:
        for key, value in rows.items():
            await client.put(key, value)
        assert await client.get("karma|ann") == b"2"
        before = await client.scan()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with serving(path, joins=KARMA) as client:
        assert await client.scan() == before
        await client.remove("vote|ann|bob")
        assert await client.get("karma|ann") == b"1"
    async with serving(path, joins=KARMA) as client:
        assert await client.get("karma|ann") == b"1"
    assert os.listdir(tmp_path) == ["pequod.snapshot"]  # noqa: PTH208 - nothing else is left


async def test_save_and_restore_go_back_to_the_moment_of_the_save(tmp_path: Path) -> None:
    async with serving(tmp_path / "file", joins=KARMA) as client:
        await client.multi_put({f"p|{number:05}": str(number) for number in range(10_000)})
        await client.put("vote|ann|bob", "")
        saved = await client.save_snapshot()
        assert (saved.path, saved.keys, saved.ranges) == (str(tmp_path / "file"), 10_001, 0)
        assert saved.file_bytes == (tmp_path / "file").stat().st_size
        await client.put("p|00007", "changed")
        await client.put("p|new", "stays")
        await client.remove_range(prefix="vote|")
        assert await client.get("karma|ann") is None
        restored = await client.restore_snapshot()
        assert restored.keys == 10_001
        assert await client.multi_get(["p|00007", "p|new", "karma|ann"]) == [b"7", b"stays", b"1"]


async def test_deadlines_are_saved_and_what_has_expired_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with serving(path, joins=KARMA) as client:
        await client.put("vote|ann|bob", "", ttl_s=0.2)
        await client.put("vote|ann|liz", "", ttl_s=1000)
        await client.put("vote|ann|joe", "")
        assert await client.get("karma|ann") == b"3"
    saved = read_snapshot(path)
    assert [key for key, _ in saved.deadlines] == [b"vote|ann|bob", b"vote|ann|liz"]
    await asyncio.sleep(0.2)
    async with serving(path, joins=KARMA) as client:
        assert await client.get("karma|ann") == b"2"
        assert 0 < (await client.ttl("vote|ann|liz") or 0.0) < 1000
        assert await client.ttl("vote|ann|joe") == math.inf
        found = await client.statistics()
        assert (found.expiring_keys, found.expired_keys) == (1, 0), "what is gone is not put at all"
        await client.persist("vote|ann|liz")
    assert read_snapshot(path).deadlines == ()


async def test_a_file_without_deadlines_is_of_the_version_that_earlier_servers_read(tmp_path: Path) -> None:
    for deadlines, version in (((), 1), (((b"a", 5),), 3)):
        write_snapshot(tmp_path / "file", Rows([b"a"], [b"1"]), (), 7, deadlines)
        data = gzip.decompress((tmp_path / "file").read_bytes())
        head = pb.SnapshotBlock.FromString(data[4 : 4 + int.from_bytes(data[:4])]).head
        assert head.version == version
        assert read_snapshot(tmp_path / "file").deadlines == deadlines


async def test_without_a_file_nothing_is_saved_or_restored(tmp_path: Path) -> None:
    async with serving(None) as client:
        for call in (client.save_snapshot, client.restore_snapshot):
            with pytest.raises(PequodError, match="set snapshot_file"):
                await call()
    async with serving(tmp_path / "file") as client:
        with pytest.raises(PequodError, match="there is no such file"):
            await client.restore_snapshot()


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    keys = [b"p|%05d" % number for number in range(9000)]
    write_snapshot(path, Rows(keys, [b"value of " + key for key in keys]), ())
    return path


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    snapshot = read_snapshot(_file(tmp_path))
    assert len(snapshot.rows.keys) == 9000
    assert snapshot.rows.values[8999] == b"value of p|08999"


@pytest.mark.parametrize("part", [0.001, 0.3, 0.6, 0.999])
def test_a_file_that_is_cut_or_has_a_wrong_byte_is_refused(tmp_path: Path, part: float) -> None:
    path = _file(tmp_path)
    data = path.read_bytes()
    at = int(len(data) * part)
    for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :], data + b"more"):
        path.write_bytes(damaged)
        with pytest.raises(SnapshotError, match=r"snapshot .*file: "):
            read_snapshot(path)


def _framed(*blocks: bytes) -> bytes:
    return gzip.compress(b"".join(len(block).to_bytes(4, "big") + block for block in blocks))


FOREIGN = {
    "nothing": (b"", "no snapshot"),
    "text": (b"key,value\np|bob,Hi\n", "no snapshot"),
    "a compressed text": (gzip.compress(b"key,value\np|bob,Hi\n" * 99), "no snapshot"),
    "another format": (_framed(pb.SnapshotHead(format="other").SerializeToString()), "no snapshot"),
    "a newer version": (
        _framed(pb.SnapshotBlock(head=pb.SnapshotHead(format="pequod snapshot", version=4)).SerializeToString()),
        "version 4",
    ),
    "no end": (
        _framed(pb.SnapshotBlock(head=pb.SnapshotHead(format="pequod snapshot", version=1)).SerializeToString()),
        "damaged",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_file_of_something_else_changes_nothing(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, reason = FOREIGN[name]
    path = tmp_path / "file"
    async with serving(path) as client:
        await client.put("p|bob", "Hi")
        path.write_bytes(data)
        with pytest.raises(PequodError, match=reason):
            await client.restore_snapshot()
        assert await client.scan() == [(b"p|bob", b"Hi")]
        path.write_bytes(data)
        with pytest.raises(SnapshotError, match=reason):
            await PequodServer(ServerConfig(listen="127.0.0.1:0", snapshot_file=path)).start()
        assert path.read_bytes() == data


def test_serve_ends_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"something")
    assert run(ServerConfig(listen="127.0.0.1:0", snapshot_file=path)) == 3
    assert f"pequod: snapshot {path}: it is no snapshot" in capsys.readouterr().err


async def test_keys_that_do_not_fit_the_settings_are_all_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with serving(path) as client:
        await client.put("karma|ann", "9")
        await client.put("p|bob", "Hi")
    with pytest.raises(SnapshotError, match="karma"):
        await PequodServer(ServerConfig(listen="127.0.0.1:0", snapshot_file=path, joins=KARMA)).start()
    async with serving(path) as client:
        assert await client.get("karma|ann") == b"9"
