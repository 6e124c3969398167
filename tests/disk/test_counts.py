"""Counts of more rows than memory has room for: exact while others write, and without the rows in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from pequod_server.backing import turns
from pequod_server.data.library import RowsError
from pequod_server.data.rows import StoredRows

import pequod
from pequod.engine import Range
from pequod.errors import DiskFullError
from tests.disk.folders import until
from tests.disk.test_beyond import beyond, filled, is_here, served

ROWS = {**beyond("p"), **beyond("q")}
OTHERS = {b"loose": b"1", b"r|1": b"2", b"s|ann|bob": b"3"}
WHOLE = Range(b"p|", b"p}")


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**ROWS, **OTHERS})
    return tmp_path / "data"


async def test_long_ranges_are_counted_without_their_rows_in_memory(folder: Path) -> None:
    async with served(folder) as (server, client, _):
        await filled(server, client)
        assert server._loading is not None
        before = server._loading.ranges.rows_loaded
        assert await client.count(prefix="q|") == 2000
        assert await client.count("p|1000", "q|1500") == 1000 + 1500
        assert await client.count("p|", "s}") == len(ROWS) + 2
        batch = client.batch()
        batch.put("q|new", "1")
        batch.count(prefix="q|")
        batch.count(prefix="p|")
        batch.put("p|new", "1")
        assert await batch.send() == [None, 2001, 2000, None]
        held, (_, one, three) = await client.transaction(
            [pequod.value_of("r|1") == "2"],
            [pequod.Put("q|newer", "1"), pequod.Count(prefix="q|"), pequod.Count("s|", "s}")],
        )
        assert (held, one, three) == (True, 2002, 1)
        counts_ = await client.transaction([], [pequod.Count(prefix="q|"), pequod.Count(prefix="p|")])
        assert counts_ == (True, [2002, 2001]), "both at one moment"
        assert await client.count("q|0500", "q|0505") == 5
        assert is_here(server, b"q|0500"), "few rows are taken in, for the next count"
        loaded = server._loading.ranges.rows_loaded - before
        assert loaded < 200, "the others are counted where they are"
        assert server.engine.ledger.total_bytes <= server.engine.ledger.limit_bytes


@pytest.mark.parametrize("seed", range(3))
async def test_a_count_is_exact_at_each_moment_while_others_write(folder: Path, seed: int) -> None:
    random = Random(seed)
    async with served(folder) as (server, client, _):
        await filled(server, client)
        loading, engine = server._loading, server.engine
        assert loading is not None
        there = {key for key in ROWS if key.startswith(b"p|")}

        async def write() -> None:
            key = b"p|%04d" % random.randrange(0, 1980, 3)
            match random.randrange(4):
                case 0:
                    assert await client.remove(key) == (key in there)
                    there.discard(key)
                case 1:
                    gone = [one for one in sorted(there) if key <= one][:9]
                    assert await client.remove_range(gone[0], gone[-1] + b"\0") == len(gone)
                    there.difference_update(gone)
                case 2:
                    await client.put(key + b"|new", "1")
                    there.add(key + b"|new")
                case _:
                    # The commit comes with the next slice.
                    engine.put(key, b"1" * random.randrange(100))
                    there.add(key)

        counted = loading._disk.counts.begin(WHOLE)
        while counted.at < counted.last:
            assert loading.ranges.counted(WHOLE) is None
            loading.ranges._count_some(counted)
            await write()
        for _ in range(40):
            assert loading.ranges.counted(WHOLE) == len(there)
            assert await client.count(prefix="p|") == len(there)
            await write()
        loading._disk.counts.end(counted)


async def test_counts_beside_writers_have_one_of_the_sizes_that_there_were(folder: Path) -> None:
    with patch.object(turns, "SLICE_S", 0.0):
        async with served(folder) as (server, client, _):
            await filled(server, client)
            size, sizes = 2000, [2000]

            async def write() -> None:
                nonlocal size
                for number in range(100):
                    await client.put(f"p|{number * 17 % 2000:04}|new", "1")
                    size += 1
                    sizes.append(size)

            async def count() -> None:
                before = size
                found = await client.count(prefix="p|")
                # One write may be answered later than the count that has seen it.
                assert before <= found <= size + 1
                assert found != 2000, "others wrote meanwhile"

            await asyncio.gather(write(), *(count() for _ in range(3)))
            assert await client.count(prefix="p|") == 2100
            disk = server.disk
            assert disk is not None
            # Nothing is followed any more, some time later.
            await until(lambda: not disk.counts._by_range)


async def test_keys_that_are_due_on_disk_alone_do_not_count(tmp_path: Path) -> None:
    rows = beyond("p")
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put(rows)
        await client.multi_put(dict.fromkeys([*rows][::4], b"x" * 200), ttl_s=3600)
    async with served(tmp_path / "data") as (server, client, _):
        await filled(server, client)
        assert await client.count(prefix="p|") == 2000
        later_ms = server.databases.expiring.clock_ms() + 7_200_000
        with patch.object(server.databases.expiring, "clock_ms", lambda: later_ms):
            # The count that was just made is of no use any more.
            assert await client.count(prefix="p|") == 1500


async def test_a_commit_that_finds_no_room_changes_no_count(folder: Path) -> None:
    async with served(folder) as (server, client, _):
        await filled(server, client)
        loading, disk = server._loading, server.disk
        assert loading is not None and disk is not None
        counted = disk.counts.begin(WHOLE)
        while counted.at < counted.last:
            loading.ranges._count_some(counted)
        with patch.object(StoredRows, "write", side_effect=RowsError("IO error: No space left on device")):
            server.engine.put(b"p|0001|new", b"1")
            assert loading.ranges.counted(WHOLE) == 2001
            with pytest.raises(DiskFullError):
                disk.commit()
        assert loading.ranges.counted(WHOLE) == 2000
        disk.counts.end(counted)
