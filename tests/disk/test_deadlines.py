"""Deadlines of keys in a folder of data: they outlive the server with their keys, and go as these go."""

import asyncio
import time
from pathlib import Path

import pytest
from pequod_server.data.tools import backup, check, repair

from tests.disk.folders import contents, deadlines, killed, served, until

JOIN = "online|<room> = count session|<room>|<user>"


async def test_a_deadline_holds_over_a_restart_and_a_kill(tmp_path: Path) -> None:
    async with served(tmp_path / "data", joins=JOIN) as (_, client):
        await client.put("session|a|ann", "", ttl_s=3600)
        await client.put("session|a|bob", "", ttl_s=0.05)
        await client.put("session|a|eve", "")
        copy = killed(tmp_path / "data", tmp_path / "killed")
    await asyncio.sleep(0.1)
    for folder in (tmp_path / "data", copy):
        async with served(folder, joins=JOIN) as (_, client):
            assert await client.get("online|a") == b"2"
            assert await client.get("session|a|bob") is None
            left_s = await client.ttl("session|a|ann")
            assert left_s is not None and 3500 < left_s <= 3600
        assert sorted(contents(folder)) == [b"session|a|ann", b"session|a|eve"], (
            "what was due went from the folder, too"
        )
        assert list(deadlines(folder)) == [b"session|a|ann"]


async def test_what_changes_the_deadline_alone_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder) as (_, client):
        for key in ("put", "persisted", "extended", "kept", "multi"):
            await client.put(key, "1", ttl_s=60)
        await client.put("given", "1")
    async with served(folder) as (_, client):
        # The same value: only the deadline goes.
        await client.put("put", "1")
        await client.multi_put({"multi": "1"})
        assert await client.persist("persisted")
        assert await client.expire("extended", 7200)
        await client.put("kept", "2", keep_ttl=True)
        assert await client.expire("given", 7200)
    found, now_ms = deadlines(folder), time.time() * 1000
    assert sorted(found) == [b"extended", b"given", b"kept"]
    assert found[b"kept"] <= now_ms + 60_000 and found[b"extended"] > now_ms + 7_000_000
    async with served(folder) as (_, client):
        assert await client.remove("given")
        await client.put("given", "2")
    assert sorted(deadlines(folder)) == [b"extended", b"kept"]


async def test_a_key_that_expires_while_the_server_runs_goes_from_the_folder(tmp_path: Path) -> None:
    async with served(tmp_path / "data", fsync="always") as (server, client):
        await client.put("a", "1", ttl_s=0.05)
        await until(lambda: not server.engine.deadlines)
        copy = killed(tmp_path / "data", tmp_path / "killed")
        assert await client.get("a") is None
    assert (contents(tmp_path / "data"), deadlines(tmp_path / "data")) == ({}, {})
    assert contents(copy) in ({}, {b"a": b"1"}), "the turn that removes a key commits it at its end"


@pytest.mark.parametrize("is_repaired", [False, True])
async def test_a_copy_has_the_deadlines(tmp_path: Path, is_repaired: bool) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("a", "1", ttl_s=3600)
        await client.put("b", "1")
    folder = tmp_path / "data"
    if is_repaired:
        (folder / "folder.json").unlink()
        assert repair(folder).kept is not None
    else:
        backup(folder, tmp_path / "copy")
        folder = tmp_path / "copy"
    assert check(folder).key_count == 2
    assert list(deadlines(folder)) == [b"a"]


async def test_an_add_leaves_the_deadline_as_it_is(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("n", "1", ttl_s=3600)
        batch = client.batch()
        batch.add("n", 2)
        batch.ttl("n")
        assert await client.add("n", 3) == b"4"
        total, left_s = await batch.send()
        assert total == b"6"
        assert isinstance(left_s, float) and left_s > 3500
    assert list(deadlines(tmp_path / "data")) == [b"n"]
