"""More base data than memory: ranges of a folder come and go as reads need them, and every answer is exact.

An engine with a limit of its own keeps it under a server, so that a few rows are more than memory has room for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig
from pequod_server.data import loading, ranges
from pequod_server.data.errors import DamagedError

from pequod.client import AsyncClient
from pequod.engine import Engine
from pequod.engine.base import presence
from pequod.engine.testing import NaiveModel
from pequod.errors import PequodError
from tests.disk.beyond import fill, pressed
from tests.disk.folders import contents, killed

JOINS = """
    t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3>;
    posts|<poster> = count p|<poster>|<time:3>;
"""
LIMIT_BYTES = 120_000
USERS = [b"%02d" % number for number in range(20)]


@asynccontextmanager
async def served(folder: Path, limit_bytes: int = LIMIT_BYTES) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    """Run a server whose engine has little memory; no row is taken in before the first call."""
    config = ServerConfig(listen="127.0.0.1:0", data=folder, joins=JOINS)
    with (
        patch.object(loading, "ROWS_AT_FIRST", 0),
        patch.object(ranges, "ROWS_A_SLICE", 7),
        patch.object(presence, "PART_ROWS_MAX", 8),
    ):
        server = PequodServer(config, Engine(memory_limit=limit_bytes, indexes_at_once=False))
        port = await server.start()
        try:
            async with AsyncClient(f"127.0.0.1:{port}") as client:
                yield server, client
        finally:
            await server.stop()
            server.engine._check()


class Beside:
    """A client and the model, which are told the same."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.model = NaiveModel()
        for spec in parse(JOINS):
            self.model.add(spec)
        #: How many ranges reads have had loaded.
        self.loads = 0

    async def begin(self, client: AsyncClient) -> None:
        """Put so much that memory has no room for it later."""
        rows = {b"p|%b|%03d" % (user, number): self.random.randbytes(4) * 250 for user in USERS for number in range(10)}
        await client.multi_put(rows)
        for row in rows.items():
            self.model.put(*row)

    def _key(self) -> bytes:
        random = self.random
        match random.randrange(6):
            case 0:
                return b"s|%b|%b" % (random.choice(USERS), random.choice(USERS))
            case 1:
                return b"n|%03d" % random.randrange(20)
            case 2:
                return b"loose%d" % random.randrange(3)
        return b"p|%b|%03d" % (random.choice(USERS), random.randrange(12))

    async def write(self, client: AsyncClient) -> None:
        random, key = self.random, self._key()
        match random.randrange(6):
            case 0:
                assert await client.remove(key) == self.model.remove(key)
            case 1:
                key = b"n|%03d" % random.randrange(20)
                assert await client.add(key, 1) is not None
                self.model.add_to(key, b"1")
            case 2:
                user = random.choice(USERS)
                first, last = b"p|%b|003" % user, b"p|%b|006" % user
                gone = [one for one in sorted(self.model.base) if first <= one < last]
                assert await client.remove_range(first, last) == len(gone)
                for one in gone:
                    self.model.remove(one)
            case _:
                value = b"5" if key.startswith(b"n|") else random.randbytes(4) * 250
                await client.put(key, value)
                self.model.put(key, value)

    async def look(self, client: AsyncClient) -> None:
        random = self.random
        user = random.choice(USERS)
        key = self._key()
        assert await client.get(key) == self.model.base.get(key)
        match random.randrange(4):
            case 0:
                first, last = b"t|%b|" % user, b"t|%b}" % user
            case 1:
                first, last = b"posts|%b" % user, b"posts|%b\0" % user
            case 2:
                first, last = b"p|%b|005" % user, b"p|%b}" % user
            case _:
                first, last = b"n|005", b"n|015"
        limit, reverse = random.choice((None, 3)), random.random() < 0.3
        found = await client.scan(first, last, limit=limit, reverse=reverse)
        assert found == self.model.scan(first, last, limit=limit, reverse=reverse)


@pytest.mark.parametrize("seed", range(3))
async def test_answers_are_exact_over_evictions_restarts_and_kills(tmp_path: Path, seed: int) -> None:
    beside, folder = Beside(Random(seed)), tmp_path / "0"
    for life in range(4):
        async with served(folder, LIMIT_BYTES if life else 1 << 30) as (server, client):
            if not life:
                await beside.begin(client)
            for _ in range(100):
                await beside.write(client)
            for _ in range(60):
                await beside.look(client)
                await beside.write(client)
            ledger = server.engine.ledger
            assert ledger.total_bytes <= ledger.limit_bytes
            if life:
                assert ledger.evictions > 0
                assert server.engine.is_kept(b"p|"), "there is no memory for all of it"
            copy = killed(folder, tmp_path / f"{life + 1}")
        assert contents(folder) == beside.model.base
        assert contents(copy) == beside.model.base
        # The next life is after a kill, or after an end in order.
        folder = copy if life % 2 else folder


async def test_a_scan_of_all_rows_goes_through_memory_that_has_room_for_some(tmp_path: Path) -> None:
    rows = {b"p|%02d|%04d" % (number % 20, number): b"x" * 200 for number in range(6000)}
    async with served(tmp_path / "data", 1 << 30) as (_, client):
        await client.multi_put(rows)
    async with served(tmp_path / "data", 8 * LIMIT_BYTES) as (server, client):
        found = [row async for row in client.scan_iter("p|", "p}")]
        assert found == sorted(rows.items())
        assert server.engine.ledger.total_bytes <= 8 * LIMIT_BYTES
        down = await client.scan("p|", "p}", limit=5, reverse=True)
        assert [key for key, _ in down] == sorted(rows)[:-6:-1]


async def test_what_fits_is_held_as_a_whole_soon_after_the_start(tmp_path: Path) -> None:
    rows = {b"p|%03d" % number: b"x" for number in range(500)}
    async with served(tmp_path / "data", 1 << 30) as (_, client):
        await client.multi_put({**rows, b"loose": b"y"})
    async with served(tmp_path / "data", 1 << 30) as (server, client):
        assert server.engine.is_kept(b"p|"), "it answers at once"
        assert await client.get("p|007") == b"x"
        while server.engine.is_kept(b"p|"):
            await client.get("loose")
        assert await client.count("p|", "p}") == 500


async def test_a_put_of_a_key_that_is_not_in_memory_loads_nothing(tmp_path: Path) -> None:
    rows = {b"p|%04d" % number: b"x" * 200 for number in range(2000)}
    async with served(tmp_path / "data", 1 << 30) as (_, client):
        await client.multi_put(rows)
    async with served(tmp_path / "data") as (server, client):
        assert server._loading is not None
        while server._loading.is_whole is None:
            await client.get("loose")
        before = server._loading.ranges.rows_loaded
        for number in range(0, 2000, 3):
            await client.put(f"p|{number:04}", "new")
            rows[b"p|%04d" % number] = b"new"
        assert server._loading.ranges.rows_loaded == before
        assert await client.get("p|1998") == b"new"
        assert server._loading.ranges.rows_loaded > before
    assert contents(tmp_path / "data") == rows


async def test_damage_that_a_read_finds_ends_the_server_with_the_file(tmp_path: Path) -> None:
    async with served(tmp_path / "data", 1 << 30) as (_, client):
        await client.multi_put({b"p|%05d" % number: Random(number).randbytes(200) for number in range(5000)})
    (file,) = (tmp_path / "data" / "rows").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    async with served(tmp_path / "data", 1 << 30) as (server, client):
        with pytest.raises(PequodError, match="is not available"):
            await client.scan("p|", "p}")
        assert server.disk is not None
        assert server.disk.failed is not None
        with pytest.raises(DamagedError, match=file.name):
            await server.disk.failed


def test_a_process_stays_within_its_limit_with_more_data_than_that(tmp_path: Path) -> None:
    row_count, limit_mib = 200_000, 128
    fill(tmp_path / "data", row_count)
    seen = pressed(tmp_path / "data", row_count, seconds=2.0, limit_mib=limit_mib)
    assert seen.writes > 0
    assert seen.resident_bytes <= 1.1 * (limit_mib << 20)
