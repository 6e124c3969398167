"""Keys that expire while they are on disk alone go from the folder, though nobody reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest
from pequod_server import PequodServer
from pequod_server.backing import turns
from pequod_server.data import sweeping
from pequod_server.data.disk import Disk
from pequod_server.data.loading import FolderLoading
from pequod_server.data.sweeping import Sweeping

from pequod.engine import Engine
from tests.disk.folders import contents, deadlines, until
from tests.disk.test_beyond import beyond, filled, served

SOON_S = 0.3


def on_disk(server: PequodServer) -> int:
    """Return how many rows of one table the folder has."""
    assert server._loading is not None
    rows = server._loading._disk.rows()
    return sum(1 for _ in rows.between(b"x|", b"x}"))


@pytest.mark.parametrize("after", ["a start", "a put"])
async def test_keys_that_expire_on_disk_alone_go_without_a_read(tmp_path: Path, after: str) -> None:
    folder = tmp_path / "data"
    rows = beyond("x")
    kept = {key: value for at, (key, value) in enumerate(rows.items()) if at % 2}
    gone = rows.keys() - kept.keys()
    with patch.object(sweeping, "PAUSE_S", 0.05):
        async with served(folder, limit_bytes=1 << 30) as (before, client, _):
            await client.multi_put(kept)
            if after == "a start":
                await client.multi_put(dict.fromkeys(gone, b"y" * 200), ttl_s=SOON_S)
        async with served(folder) as (server, client, _):
            await filled(server, client)
            if after == "a put":
                for key in gone:
                    await client.put(key, b"y" * 200, ttl_s=SOON_S)
            await until(lambda: on_disk(server) == len(kept))
            # On a slow machine, some expire before the start.
            assert before.engine.expired_count + server.engine.expired_count == len(gone)
    assert {key: value for key, value in contents(folder).items() if key.startswith(b"x|")} == kept
    assert deadlines(folder) == {}


async def test_a_look_removes_what_is_due_and_away_in_slices_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder, limit_bytes=1 << 30) as (server, client, _):
        await client.multi_put({f"x|{number:03}": "1" for number in range(100)}, ttl_s=60)
        await client.multi_put({f"x|{number:03}": "1" for number in range(0, 100, 2)}, ttl_s=3600)
        await client.multi_put({f"y|{number:03}": "1" for number in range(10)}, ttl_s=60)
        now_ms = server.engine.deadlines.now_ms
    engine = Engine(at_once=False)
    disk = Disk(folder, engine, "never")
    with patch("pequod_server.data.loading.ROWS_AT_FIRST", 0), patch.object(FolderLoading, "_go_on"):
        loading = FolderLoading(engine, disk, keeps_joins=True)
        await loading.run()
    loading.ranges.take_ahead(loading._left[1])
    assert not engine.is_away(b"y|000"), "its table is in memory"
    engine.deadlines.tell(now_ms)
    sweep, turn = Sweeping(engine, disk), 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    removed_in = dict[int, int]()
    remove = Engine.expire_away

    def counted(self: Engine, key: bytes) -> None:
        removed_in[turn] = removed_in.get(turn, 0) + 1
        remove(self, key)

    counting = asyncio.create_task(count_turns())
    with (
        patch.object(sweeping, "KEYS_A_SLICE", 7),
        patch.object(turns, "SLICE_S", 0.0),
        patch.object(Engine, "expire_away", counted),
    ):
        assert await sweep.look() == 0, "nothing is due"
        assert sweep._first_ms > now_ms
        engine.deadlines.tell(now_ms + 120_000)
        assert await sweep.look() == 50
    counting.cancel()
    assert max(removed_in.values()) <= 7, "the calls of others have their turn"
    assert len(removed_in) >= 50 // 7
    assert sweep._first_ms > now_ms + 3_000_000, "the next look is when the first of the others is due"
    assert engine.get(b"y|000", now=0.0) is None
    await disk.end()
    left = contents(folder)
    assert [key for key in sorted(left) if key.startswith(b"x|")] == [b"x|%03d" % at for at in range(0, 100, 2)]
