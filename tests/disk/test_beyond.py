"""More base data than memory: ranges of a folder come and go as reads need them, and every answer is exact.

An engine with a limit of its own keeps it under a server, so that a few rows are more than memory has room for.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from grpc import aio
from pequod_bench.store.beyond import pressed
from pequod_bench.store.filled import fill
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.data import loading, ranges
from pequod_server.data.errors import DamagedError

import pequod
from pequod.client import AsyncClient, Change
from pequod.client.watch_ranges import WatchedRange
from pequod.commands.kinds import ADD, GET, OK
from pequod.engine import Engine, MissingError
from pequod.engine.base import presence
from pequod.errors import LimitExceededError, PequodError
from pequod.language.conditions import IF_ABSENT
from tests.disk.beside import JOINS, USERS, Beside
from tests.disk.folders import contents, killed
from tests.peer.homes import computing

LIMIT_BYTES = 120_000


class Life(NamedTuple):
    """A server on a folder, a client of it, and where it listens."""

    server: PequodServer
    client: AsyncClient
    address: str


def beyond(table: str) -> dict[bytes, bytes]:
    """Return rows for which there is no memory."""
    return {f"{table}|{number:04}".encode(): b"x" * 200 for number in range(2000)}


async def filled(server: PequodServer, client: AsyncClient) -> None:
    """Wait until memory is as full as it becomes without reads."""
    assert server._loading is not None
    while server._loading.is_whole is None:
        await client.get("loose")
    assert not server._loading.is_whole, "there is no memory for all of it"


def is_here(server: PequodServer, key: bytes) -> bool:
    return not server.engine.absent(key, key + b"\0")


@asynccontextmanager
async def served(folder: Path, limit_bytes: int = LIMIT_BYTES, **settings: Any) -> AsyncIterator[Life]:
    """Run a server whose engine has little memory; no row is taken in before the first call."""
    config = ServerConfig(listen="127.0.0.1:0", data=folder, joins=JOINS, **settings)
    with (
        patch.object(loading, "ROWS_AT_FIRST", 0),
        patch.object(ranges, "ROWS_A_SLICE", 7),
        patch.object(presence, "PART_ROWS_MAX", 8),
    ):
        server = PequodServer(config, Engine(memory_limit=limit_bytes, at_once=False))
        port = await server.start()
        try:
            async with AsyncClient(f"127.0.0.1:{port}") as client:
                yield Life(server, client, f"127.0.0.1:{port}")
        finally:
            await server.stop()
            server.engine._check()


@pytest.fixture
def exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no count outlive an instant: the time of a walk takes steps of its own."""
    monkeypatch.setattr(ranges, "_COUNTS_KEPT_S", 0.0)
    monkeypatch.setattr(ranges, "_TIMES_AS_LONG_TIMED", 0)


@pytest.mark.usefixtures("exact_counts")
@pytest.mark.parametrize("seed", range(3))
async def test_answers_are_exact_over_evictions_restarts_and_kills(tmp_path: Path, seed: int) -> None:
    beside, folder = Beside(Random(seed)), tmp_path / "0"
    for life in range(4):
        async with served(folder, LIMIT_BYTES if life else 1 << 30) as (server, client, _):
            beside.keep_time(server)
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
                assert server.engine.is_paged(b"p|"), "there is no memory for all of it"
            copy = killed(folder, tmp_path / f"{life + 1}")
        beside.compare(folder)
        beside.compare(copy)
        # The next life is after a kill, or after an end in order.
        folder = copy if life % 2 else folder


@pytest.mark.usefixtures("exact_counts")
@pytest.mark.parametrize("seed", range(2))
async def test_tables_that_outgrow_memory_are_paged_in_one_life(tmp_path: Path, seed: int) -> None:
    beside, folder = Beside(Random(seed)), tmp_path / "data"
    async with served(folder) as (server, client, _):
        beside.keep_time(server)
        assert server._loading is not None
        while not server._loading.is_whole:
            await client.get("loose")
        for user in USERS[:4]:
            # Timelines that were computed while all rows were there.
            await client.put(b"s|%b|%b" % (user, USERS[0]), "1")
            beside.model.put(b"s|%b|%b" % (user, USERS[0]), b"1")
            await client.scan(prefix=b"t|%b|" % user)
        assert not server.engine.has_paged
        await beside.begin(client)
        assert server.engine.is_paged(b"p|"), "more was put than memory has room for"
        for _ in range(100):
            await beside.write(client)
            await beside.look(client)
        ledger = server.engine.ledger
        assert ledger.total_bytes <= ledger.limit_bytes
        assert ledger.evictions > 0
        assert server._loading.ranges.loads > 0
    beside.compare(folder)


async def test_a_scan_of_all_rows_goes_through_memory_that_has_room_for_some(tmp_path: Path) -> None:
    rows = {b"p|%02d|%04d" % (number % 20, number): b"x" * 200 for number in range(6000)}
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put(rows)
    async with served(tmp_path / "data", 8 * LIMIT_BYTES) as (server, client, _):
        found = [row async for row in client.scan_iter("p|", "p}")]
        assert found == sorted(rows.items())
        assert server.engine.ledger.total_bytes <= 8 * LIMIT_BYTES
        down = await client.scan("p|", "p}", limit=5, reverse=True)
        assert [key for key, _ in down] == sorted(rows)[:-6:-1]


async def test_what_fits_is_held_as_a_whole_soon_after_the_start(tmp_path: Path) -> None:
    rows = {b"p|%03d" % number: b"x" for number in range(500)}
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**rows, b"loose": b"y"})
    async with served(tmp_path / "data", 1 << 30) as (server, client, _):
        assert server.engine.is_paged(b"p|"), "it answers at once"
        assert await client.get("p|007") == b"x"
        while server.engine.is_paged(b"p|"):
            await client.get("loose")
        assert await client.count("p|", "p}") == 500


async def test_a_put_of_a_key_that_is_not_in_memory_loads_nothing(tmp_path: Path) -> None:
    rows = beyond("p")
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put(rows)
    async with served(tmp_path / "data") as (server, client, _):
        assert server._loading is not None
        await filled(server, client)
        before = server._loading.ranges.rows_loaded
        for number in range(0, 2000, 3):
            await client.put(f"p|{number:04}", "new")
            rows[b"p|%04d" % number] = b"new"
        assert server._loading.ranges.rows_loaded == before
        assert await client.get("p|1998") == b"new"
        assert server._loading.ranges.rows_loaded > before
    assert contents(tmp_path / "data") == rows


def stub_of(channel: aio.Channel) -> Any:
    return PequodStub(channel)  # type: ignore[no-untyped-call]


async def test_what_comes_again_after_a_restart_is_done_once_though_its_key_is_not_in_memory(tmp_path: Path) -> None:
    key, other = b"z|0001", b"z|9999"
    add = pb.AddRequest(key=key, delta=b"2", request_id=b"a" * 16)
    then = pb.CommandColumns(kinds=bytes([ADD, GET]), arguments=[key, b"10", other])
    transaction = pb.TransactionRequest(then=then, request_id=b"b" * 16)
    put = pb.WriteIfRequest(key=b"z|0002", value=b"mine", condition=1, request_id=b"c" * 16)
    more = pb.AddRequest(key=other, delta=b"1", request_id=b"d" * 16)
    batch = pb.ExecuteRequest(kinds=bytes([ADD]), arguments=[key, b"2"], once_commands=[0], request_ids=[b"a" * 16])
    async with (
        served(tmp_path / "data", 1 << 30) as (server, client, address),
        aio.insecure_channel(address) as channel,
    ):
        await client.multi_put({**beyond("p"), other: b"7"})
        stub = stub_of(channel)
        assert (await stub.Add(add)).value == b"2"
        assert list((await stub.Transaction(transaction)).values) == [b"12", b"7"]
        assert (await stub.WriteIf(put)).met
    async with served(tmp_path / "data") as (server, client, address), aio.insecure_channel(address) as channel:
        await filled(server, client)
        stub = stub_of(channel)
        for _ in range(2):
            assert (await stub.Add(add)).value == b"2"
            assert list((await stub.Transaction(transaction)).values) == [b"12", b"7"]
            assert (await stub.WriteIf(put)).met
            call = stub.Execute()
            await call.write(batch)
            reply = await call.read()
            assert (list(reply.statuses), list(reply.values)) == ([OK], [b"2"])
        assert not any(is_here(server, one) for one in (key, b"z|0002", other)), "their outcomes are known without them"
        assert [(await stub.Add(more)).value for _ in range(2)] == [b"8"] * 2, "what is new has its key loaded"
        assert await client.multi_get([key, b"z|0002", other]) == [b"12", b"mine", b"8"]


async def test_a_join_takes_the_place_of_another_over_rows_that_are_not_in_memory(tmp_path: Path) -> None:
    authors = [f"a{number:03}" for number in range(150)]
    liked = {f"like|{one}|{number}".encode(): b"1" for one in authors for number in range(2)}
    rows = {f"vote|{one}|1".encode(): b"5" for one in authors}
    keys = [f"karma|{one}" for one in authors]
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**beyond("a"), **beyond("b"), **liked, **rows})
        await client.add_join("karma|<author> = count vote|<author>|<id>")
    async with served(tmp_path / "data", 4 * LIMIT_BYTES) as (server, client, _):
        await filled(server, client)
        assert await client.multi_get(keys) == [b"1"] * len(keys)
        assert not is_here(server, b"like|a000|1")
        replaced = await client.replace_join("karma", "karma|<author> = count like|<author>|<id>")
        assert replaced.is_in_place
        assert is_here(server, b"like|a149|1"), "it was built ahead of reads"
        assert server.engine.is_paged(b"like|")
        assert await client.multi_get(keys) == [b"2"] * len(keys)


async def test_a_compute_writes_keys_that_are_not_in_the_memory_of_its_home(tmp_path: Path) -> None:
    rows = {b"s|zoe|%d" % number: b"5" for number in range(100)}
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**beyond("p"), **rows})
    async with served(tmp_path / "data") as (server, client, address), computing([address]) as compute:
        await filled(server, client)
        assert not is_here(server, b"s|zoe|1")
        assert await compute.client.add("s|zoe|1", 2) == b"7"
        assert not await compute.client.put("s|zoe|2", "6", condition=IF_ABSENT)
        assert await compute.client.remove("s|zoe|3")
        assert not await compute.client.remove("s|zoe|3")
        many = {f"s|zoe|{number}": "new" for number in range(4, 100)}
        await compute.client.multi_put(many)
        assert await client.multi_get(["s|zoe|1", "s|zoe|2", "s|zoe|3"]) == [b"7", b"5", None]
        assert await client.multi_get(list(many)) == [b"new"] * len(many)


async def test_a_watch_holds_the_rows_of_its_range_or_is_refused_with_advice(tmp_path: Path) -> None:
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**beyond("p"), **beyond("q")})
    async with served(tmp_path / "data") as (server, client, _):
        await filled(server, client)
        async with aclosing(client.watch("q|0100", "q|0110", rows=True)) as events:
            rows = (await anext(events)).rows
            assert rows is not None and rows.keys == [b"q|%04d" % at for at in range(100, 110)]
            for call in (client.watch("q|", "q}"), client.watch_ranges([WatchedRange(b"q|", b"q}")])):
                with pytest.raises(
                    LimitExceededError, match=r"in memory: watch a part of the range, .*or raise memory_"
                ):
                    await anext(call)
            for number in range(0, 2000, 16):
                await client.get(f"p|{number:04}")
            assert server.engine.ledger.evictions > 0
            await client.multi_put({"q|0105": "new", "q|0110": "beside"})
            assert (await anext(events)).changes == [Change(b"q|0105", b"x" * 200, b"new")]


async def test_damage_that_a_read_finds_ends_the_server_with_the_file(tmp_path: Path) -> None:
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({b"p|%05d" % number: Random(number).randbytes(200) for number in range(5000)})
    (file,) = (tmp_path / "data" / "rows").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    async with served(tmp_path / "data", 1 << 30) as (server, client, _):
        with pytest.raises(PequodError, match="is not available"):
            await client.scan("p|", "p}")
        assert server.disk is not None
        assert server.disk.failed is not None
        with pytest.raises(DamagedError, match=file.name):
            await server.disk.failed


async def test_reads_that_wait_for_the_disk_leave_nothing_to_the_cyclic_collector(tmp_path: Path) -> None:
    async with served(tmp_path / "data", 1 << 30) as (_, client, _):
        await client.multi_put({**beyond("p"), **beyond("q")})
    async with served(tmp_path / "data") as (server, client, _):
        await filled(server, client)
        random = Random(1)
        gc.collect()
        gc.disable()
        try:
            for _ in range(30):
                keys = [b"p|%04d" % random.randrange(2000) for _ in range(6)]
                assert await client.multi_get(keys) == [b"x" * 200] * 6
                batch = client.batch()
                for key in keys[:2]:
                    batch.get(key)
                batch.count(prefix="q|")
                assert (await batch.send())[-1] == 2000
                assert await client.get(keys[2].replace(b"p", b"q")) == b"x" * 200
                assert await client.scan(keys[3], limit=3)
                await client.transaction([pequod.value_of(keys[4]) == "x"], [], [pequod.Get(keys[5])])
            left = [one for one in gc.get_objects() if isinstance(one, MissingError)]
        finally:
            gc.enable()
        assert not left, "each holds the frames in which it was told, with all that they had read"


def test_a_process_stays_within_its_limit_with_more_data_than_that(tmp_path: Path) -> None:
    row_count, limit_mib = 200_000, 128
    fill(tmp_path / "data", row_count)
    seen = pressed(tmp_path / "data", row_count, seconds=2.0, limit_mib=limit_mib)
    assert seen.writes > 0
    assert seen.resident_bytes <= 1.1 * (limit_mib << 20)
