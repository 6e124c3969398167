"""The limit of memory in a server: what it means on this machine, what callers see, and that the process keeps it."""

import asyncio
import gc
import weakref
from typing import Any

import grpc
import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.memory.keeper import MemoryKeeper, limit_bytes
from pydantic import ValidationError

from pequod.client import AsyncClient
from pequod.engine import UNLIMITED, Engine
from pequod.errors import LimitExceededError, SettingError
from pequod.machine import machine_bytes
from tests.engine.joins import TIMELINE, put_all
from tests.server.memory_soak import soak
from tests.server.serving import connect, serving

LISTEN = ServerConfig(listen="127.0.0.1:0")


def test_a_limit_is_a_size_a_share_or_none() -> None:
    assert limit_bytes("4GiB") == 4 << 30
    assert limit_bytes("1048576") == 1 << 20
    assert limit_bytes("50%") == machine_bytes() // 2
    assert limit_bytes("none") == UNLIMITED
    assert ServerConfig(memory_limit=1 << 30).memory_limit == "1073741824"  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["much", "0%", "101%", "1KiB", "-1", True])
def test_other_limits_are_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="memory_limit"):
        ServerConfig(memory_limit=value)


@pytest.mark.parametrize("value", ["t", "t=high", "t=1,karma=2"])
def test_priorities_that_cannot_be_read_are_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="t=1 karma=pinned"):
        ServerConfig(memory_priorities=value)


async def test_a_full_server_refuses_puts_and_goes_on() -> None:
    async with serving(LISTEN, Engine(memory_limit=1 << 20)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            outcomes = await asyncio.gather(
                *[client.put(f"p|bob|{number:04}", bytes(1000)) for number in range(2000)], return_exceptions=True
            )
            refused = [outcome for outcome in outcomes if outcome is not None]
            assert all(isinstance(error, LimitExceededError) and error.setting == "memory_limit" for error in refused)
            kept = [f"p|bob|{number:04}".encode() for number, outcome in enumerate(outcomes) if outcome is None]
            assert [key for key, _ in await client.scan("p|", "p}")] == kept
            with pytest.raises(grpc.RpcError) as caught:
                await stub.Put(pb.PutRequest(key=b"p|liz|1", value=bytes(1000)))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "memory_limit" in str(caught.value.details())
            assert await client.remove(kept[0])
            assert await client.remove(kept[1])
            await client.put("p|liz|1", bytes(900))
            memory = (await client.statistics()).memory
            assert memory.limit_bytes == 1 << 20
            assert 0 < memory.total_bytes <= 1 << 20
            assert memory.refusals >= len(refused)


async def test_many_rows_at_once_are_written_or_refused_as_a_whole() -> None:
    async with serving(LISTEN, Engine(memory_limit=1 << 20)) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        rows = {f"p|bob|{number:04}": bytes(1000) for number in range(1500)}
        with pytest.raises(LimitExceededError, match="memory_limit"):
            await client.multi_put(rows)
        assert await client.count("p|", "p}") == 0
        await client.multi_put(dict(list(rows.items())[:700]))
        assert await client.count("p|", "p}") == 700


async def test_a_scan_that_needs_too_much_is_refused() -> None:
    config = ServerConfig(listen="127.0.0.1:0", joins=TIMELINE)
    async with serving(config, Engine(memory_limit=1 << 20)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            await asyncio.gather(*[client.put(f"s|{user}|bob", "") for user in range(100)])
            await asyncio.gather(*[client.put(f"p|bob|{time:04}", "Hi") for time in range(200)])
            with pytest.raises(LimitExceededError, match="memory_limit"):
                await client.scan("t|", "t}")
            assert len(await client.scan("t|7|", "t|7}")) == 200
        with pytest.raises(grpc.RpcError) as caught:
            async for _ in stub.Scan(pb.ScanRequest(first=b"t|", last=b"t}")):
                pass
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_keeper_makes_room_ahead_of_the_limit() -> None:
    engine = Engine(memory_limit=4 << 20)
    keeper = MemoryKeeper(engine, UNLIMITED)
    keeper.start()
    try:
        engine.add_joins(parse(TIMELINE))
        put_all(engine, {f"s|u{user:04}|bob": "" for user in range(2000)})
        for user in range(2000):
            engine.scan(b"t|u%04d|" % user, b"t|u%04d}" % user)
        engine.make_room()
        filler = 0
        while engine.ledger.total_bytes < engine.ledger.limit_bytes * 0.99:
            engine.put(b"x|%d" % filler, bytes(1000))
            engine.make_room()
            engine.scan(b"t|u%04d|" % (filler % 2000), b"t|u%04d}" % (filler % 2000))
            filler += 1
        async with asyncio.timeout(20):
            while engine.ledger.total_bytes > engine.ledger.limit_bytes * 31 / 32:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        engine._check()
    finally:
        await keeper.stop()


async def test_the_allocators_are_asked_again_at_once_when_the_process_has_grown() -> None:
    limit, resident = 512 << 20, [100 << 20]
    keeper = MemoryKeeper(Engine(), limit, lambda: resident[0])
    released: list[int] = []
    for size_mib in (510, 515, 525, 525, 540):
        resident[0] = size_mib << 20
        keeper.look()
        await keeper._release()
        released.append(keeper._released_bytes >> 20)
    assert released == [510, 510, 525, 525, 540]


async def test_a_watch_that_nobody_reads_ends_before_writes_are_refused() -> None:
    server = PequodServer(LISTEN, Engine(memory_limit=4 << 20))
    port = await server.start()
    try:
        async with connect(port) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            watch = stub.Watch(pb.WatchRequest(first=b"p|", last=b"p}"))
            while not (await watch.read()).ready:
                pass
            async with AsyncClient(f"127.0.0.1:{port}") as client:
                for number in range(200):
                    await client.put("p|bob", b"%d" % number + bytes(100_000))
            with pytest.raises(grpc.RpcError) as caught:
                while await watch.read() is not grpc.aio.EOF:
                    pass
            assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
            assert "memory_limit" in str(caught.value.details())
    finally:
        await server.stop()
    assert server.engine.ledger.watch_bytes == 0


class Process:
    """A process that takes so much."""

    def __init__(self, taken_bytes: int) -> None:
        self.taken_bytes = taken_bytes

    def resident(self) -> int:
        return self.taken_bytes


def test_the_data_has_what_the_process_leaves_of_the_limit() -> None:
    engine, process = Engine(), Process(60 << 20)
    MemoryKeeper(engine, 256 << 20, process.resident)
    assert engine.ledger.limit_bytes == 196 << 20
    memory = engine.statistics().memory
    assert (memory.process_bytes, memory.process_limit_bytes) == (60 << 20, 256 << 20)


def test_the_budget_shrinks_in_proportion_beyond_the_limit_and_comes_back_slowly() -> None:
    engine, process = Engine(), Process(60 << 20)
    keeper = MemoryKeeper(engine, 256 << 20, process.resident)
    process.taken_bytes = 256 << 20
    assert keeper.look() == 196 << 20
    process.taken_bytes = 260 << 20
    squeezed = keeper.look()
    assert 100 << 20 < squeezed < 192 << 20
    # It stays there as long as the process does: what goes may leave holes and no less for it.
    assert keeper.look() == squeezed
    process.taken_bytes = 272 << 20
    assert keeper.look() == 16 << 20
    process.taken_bytes = 200 << 20
    first = keeper.look()
    assert 170 << 20 < first < 196 << 20
    budgets = [keeper.look() for _ in range(2000)]
    assert budgets == sorted(budgets)
    assert budgets[0] - first < 1 << 20
    assert budgets[-1] == 196 << 20


def test_reads_and_stored_keys_have_room_beyond_the_limit() -> None:
    engine, process = Engine(value_bytes_max=1 << 20), Process(60 << 20)
    keeper = MemoryKeeper(engine, 256 << 20, process.resident)
    for number in range(40):
        engine.put(b"x|%d" % number, bytes(1 << 20))
    engine.weigh()
    keeper.look()
    process.taken_bytes = 300 << 20
    engine.limit_memory(keeper.look())
    assert 16 << 20 <= engine.ledger.limit_bytes - engine.ledger.stored_bytes < 17 << 20
    with pytest.raises(LimitExceededError, match="memory_limit is 268435456"):
        for number in range(40, 60):
            engine.put(b"x|%d" % number, bytes(1 << 20))


class Ring:
    """Garbage that only the cyclic collector finds."""

    def __init__(self) -> None:
        self.itself = self


async def test_beyond_the_limit_rings_of_garbage_go() -> None:
    process = Process(60 << 20)
    keeper = MemoryKeeper(Engine(), 256 << 20, process.resident)
    gc.disable()
    keeper.start()
    try:
        ring = weakref.ref(Ring())
        await asyncio.sleep(0.2)
        assert ring() is not None
        process.taken_bytes = 257 << 20
        async with asyncio.timeout(10):
            while ring() is not None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    finally:
        await keeper.stop()
        gc.enable()


def test_a_limit_that_the_empty_process_fills_is_refused_with_one_that_would_do() -> None:
    with pytest.raises(SettingError, match=r"memory_limit: .*: give it 77MiB or more"):
        MemoryKeeper(Engine(), 64 << 20, Process((60 << 20) + 1).resident)
    with pytest.raises(SettingError, match="memory_limit"):
        PequodServer(ServerConfig(listen="127.0.0.1:0", memory_limit="16MiB"))


@pytest.mark.parametrize(
    ("limit_mib", "messages_mib", "budget_mib"),
    [(256, 16, 164), (256, 100, 80), (256, 164, 16), (256, 4, 176), (4096, 4, 3904), (4096, 1024, 2884), (80, 5, 16)],
)
def test_the_memory_for_messages_is_kept_free(limit_mib: int, messages_mib: int, budget_mib: int) -> None:
    engine = Engine()
    resident = Process(60 << 20).resident
    MemoryKeeper(engine, limit_mib << 20, resident, messages_bytes=messages_mib << 20)
    assert engine.ledger.limit_bytes == budget_mib << 20
    assert engine.ledger.process_limit_bytes == limit_mib << 20


def test_where_the_process_cannot_be_told_the_limit_is_for_the_data() -> None:
    engine = Engine()
    MemoryKeeper(engine, 2 << 20, lambda: 0)
    assert engine.ledger.limit_bytes == 2 << 20


async def test_the_process_keeps_the_limit() -> None:
    phases = ["follows", "posts", *["timelines"] * 4, "deep", "watches", "blobs", "posts", *["timelines"] * 4]
    report = await soak(0.0, limit_mib=256, seed=1, phases=phases, filled_mib=158)
    assert report.wrong == []
    assert report.checked > 100
    assert report.evictions > 100
    assert report.peak_bytes <= report.allowed_bytes


@pytest.mark.parametrize(
    ("limit_mib", "messages_mib", "most_mib", "enough_mib"),
    [(256, 165, 164, 258), (256, 1024, 164, 1174), (80, 6, 5, 88)],
)
def test_memory_for_messages_that_does_not_fit_into_the_limit_is_refused(
    limit_mib: int, messages_mib: int, most_mib: int, enough_mib: int
) -> None:
    def keeper(limit_mib: int, messages_mib: int) -> MemoryKeeper:
        return MemoryKeeper(Engine(), limit_mib << 20, Process(60 << 20).resident, messages_bytes=messages_mib << 20)

    advice = f"give messages_bytes_max {most_mib}MiB at most, or memory_limit {enough_mib}MiB or more"
    with pytest.raises(SettingError, match=f"messages_bytes_max: .* memory_limit .*: {advice}"):
        keeper(limit_mib, messages_mib)
    keeper(limit_mib, most_mib)
    keeper(enough_mib, messages_mib)
