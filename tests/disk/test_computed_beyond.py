"""Computed rows whose sources have no room in memory: scans go through them in parts, and are exact."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.engine import Engine
from pequod.errors import LimitExceededError
from tests.disk.folders import contents

JOINS = "e|<a>|<b> = copy d|<a>|<b>; n|<a> = count d|<a>|<b>; w|<a:3> = count f|<a:3>|<b>"
#: Groups whose names are prefixes of each other, whose rows are in another order than those of the counts.
GROUPS = ["1", "10", "100", "101", "11", "2", "20", "200", "21", *(str(number) for number in range(300, 380)), "9"]
LIMIT_BYTES = 500_000


def rows() -> dict[bytes, bytes]:
    made = {f"d|{group}|{row:03}": "x" * 100 for group in GROUPS for row in range(60)}
    made |= {f"f|{group:03}|{row:03}": "x" * 100 for group in range(90) for row in range(60)}
    return {key.encode(): value.encode() for key, value in made.items()}


def computed(base: dict[bytes, bytes]) -> dict[bytes, dict[bytes, bytes]]:
    """Return what the joins make of base rows, by tables."""
    found: dict[bytes, dict[bytes, bytes]] = {b"e": {}, b"n": {}, b"w": {}}
    for key, value in base.items():
        table, group, rest = key.split(b"|")
        if table == b"d":
            found[b"e"][b"e|%s|%s" % (group, rest)] = value
        counted = b"n|" + group if table == b"d" else b"w|" + group
        counts = found[counted[:1]]
        counts[counted] = b"%d" % (int(counts.get(counted, b"0")) + 1)
    return {name: dict(sorted(its.items())) for name, its in found.items()}


class Beyond:
    """A server whose data are several times what it has room for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.base = rows()

    async def __aenter__(self) -> AsyncClient:
        config = ServerConfig(listen="127.0.0.1:0", data=self._folder, joins=JOINS)
        filling = PequodServer(config)
        await filling.start()
        filling.engine.put_all([*self.base], [*self.base.values()])
        await filling.stop()
        self.server = PequodServer(config, Engine(memory_limit=LIMIT_BYTES, at_once=False))
        self.port = await self.server.start()
        assert self.server.engine.is_paged(b"d|"), "there is no memory for all of it"
        self.client = AsyncClient(f"127.0.0.1:{self.port}", retries=0)
        return await self.client.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self.client.__aexit__(None, None, None)
        await self.server.stop()
        self.server.engine._check()


@pytest.mark.parametrize("table", ["n", "e", "w"])
async def test_a_scan_of_computed_rows_goes_through_sources_that_memory_has_no_room_for(
    tmp_path: Path, table: str
) -> None:
    beyond = Beyond(tmp_path)
    async with beyond as client:
        expected = [*computed(beyond.base)[table.encode()].items()]
        assert await client.scan(prefix=f"{table}|") == expected
        assert await client.scan(prefix=f"{table}|", limit=10) == expected[:10]
        ledger = beyond.server.engine.ledger
        assert ledger.total_bytes <= ledger.limit_bytes


@pytest.mark.parametrize(
    "loaded",
    [
        [(363, 372), (345, 359), (310, 315)],
        [(319, 324), (364, 378), (316, 330)],
        [(356, 369), (337, 341), (332, 341), (361, 375)],
    ],
)
async def test_rows_that_others_have_loaded_make_room_for_what_a_read_computes(
    tmp_path: Path, loaded: list[tuple[int, int]]
) -> None:
    beyond = Beyond(tmp_path)
    async with beyond as client:
        # All of these rows count as what the one timeline is made of: while a read computes some of it, they stay. With
        # them there is no room for that; and once what was computed is dropped, they seem to fit.
        for first, last in loaded:
            await client.scan(f"d|{first}|", f"d|{last}|")
        expected = [*computed(beyond.base)[b"e"].items()]
        assert await client.scan(prefix="e|", limit=10) == expected[:10]


async def test_parts_are_exact_while_others_write(tmp_path: Path) -> None:
    beyond, random = Beyond(tmp_path), Random(0)
    async with beyond as client:
        for _ in range(6):
            for _ in range(40):
                key = f"d|{random.choice([*GROUPS, '30', '3'])}|{random.randrange(70):03}".encode()
                if random.random() < 0.5:
                    await client.remove(key)
                    beyond.base.pop(key, None)
                else:
                    await client.put(key, "new")
                    beyond.base[key] = b"new"
            first = f"n|{random.choice(['', '1', '10', '3', '30', '33'])}".encode()
            expected = [row for row in computed(beyond.base)[b"n"].items() if row[0] >= first]
            assert await client.scan(first, b"n}") == expected
        # Each row of a scan is one that was there at a moment of the scan.
        counts = {key: {value} for key, value in computed(beyond.base)[b"n"].items()}

        async def write() -> None:
            while True:
                key = f"d|{random.choice(GROUPS)}|{random.randrange(1000):03}".encode()
                beyond.base.setdefault(key, b"y")
                await client.put(key, beyond.base[key])
                for counted, value in computed({key: b"" for key in beyond.base if key[:1] == b"d"})[b"n"].items():
                    counts.setdefault(counted, set()).add(value)

        writing = asyncio.create_task(write())
        found = await client.scan(prefix="n|")
        writing.cancel()
        assert {key for key, _ in found} == counts.keys()
        assert all(value in counts[key] for key, value in found)
    assert contents(tmp_path).keys() >= beyond.base.keys()


async def test_a_count_that_has_no_room_says_what_has(tmp_path: Path) -> None:
    async with Beyond(tmp_path) as client:
        for table in ("e", "n"):
            with pytest.raises(LimitExceededError, match=r"count or scan a part of it, or scan it upwards.*in parts"):
                await client.count(prefix=f"{table}|")
        assert await client.count(prefix="d|") == 60 * len(GROUPS), "base rows are counted where they are"
        assert await client.count(prefix="e|330|") == 60


async def test_scans_of_a_plain_client_go_on_behind_whatever_key(tmp_path: Path) -> None:
    """A group's name may begin with another's, whose keys lie above it: e|2| is behind e|20|."""
    beyond, random = Beyond(tmp_path), Random(3)
    async with beyond, grpc.aio.insecure_channel(f"127.0.0.1:{beyond.port}") as channel:
        stub, expected = PequodStub(channel), computed(beyond.base)  # type: ignore[no-untyped-call]
        for table, first in [("e", "e|2|019"), ("e", "e|1|0"), ("n", "n|"), ("w", "w|"), ("e", "e|"), ("n", "n|2")]:
            limit = random.choice([2, 100, 1_000, 10_000])
            request = pb.ScanRequest(first=first.encode(), last=f"{table}}}".encode(), limit=limit)
            found = [row async for reply in stub.Scan(request) for row in zip(reply.keys, reply.values, strict=True)]
            assert found == [row for row in expected[table.encode()].items() if row[0] >= first.encode()][:limit]
        with pytest.raises(grpc.aio.AioRpcError, match=r"scan it upwards, which reads it in parts"):
            await anext(aiter(stub.Scan(pb.ScanRequest(prefix=b"e|", reverse=True))))
