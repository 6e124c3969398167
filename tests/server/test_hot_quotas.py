"""Calls of roles with quotas are hot while they keep within these, and counted once, by the core or by a handler."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod.errors import QuotaExceededError
from pequod.native.http2 import why_absent
from tests.server.roles import bearer
from tests.server.test_hot import hot_counts
from tests.server.test_quotas import Bounded, access_text

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
WEB = bearer("web")


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[Bounded]:
    path = tmp_path / "access.toml"
    path.write_text(access_text())
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, access_file=path, transport="native"))
    yield Bounded(server, await server.start(), path)
    await server.stop()
    server.engine._check()


@pytest.fixture
async def stub(bounded: Bounded) -> AsyncIterator[Any]:
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}") as channel:
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


async def passes(call: Any) -> bool:
    """Return whether a call is let through; otherwise a quota refuses it."""
    try:
        await call
    except aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return False
    return True


def get(stub: Any, key: bytes = b"p|1") -> Any:
    return stub.Get(pb.GetRequest(key=key), metadata=WEB)


def put(stub: Any, key: bytes, value: bytes = b"") -> Any:
    return stub.Put(pb.PutRequest(key=key, value=value), metadata=WEB)


def batches_of(bounded: Bounded) -> int:
    """Return how many batches were hot."""
    found: int = bounded.server._server.hot.native.batch_tallies()[0][0]  # type: ignore[attr-defined]
    return found


async def test_calls_are_counted_up_to_the_rate(bounded: Bounded, stub: Any) -> None:
    bounded.engine.put(b"p|1", b"one")
    bounded.allow("calls_per_s = 20")
    for number in range(5):
        assert await passes(get(stub))
        assert await passes(put(stub, b"p|%d" % number))
    assert await passes(stub.MultiGet(pb.MultiGetRequest(keys=[b"p|1"] * 4), metadata=WEB))
    assert await passes(stub.MultiPut(pb.MultiPutRequest(keys=[b"p|7", b"p|8"], values=[b"", b""]), metadata=WEB))
    assert hot_counts(bounded.server) == {"Get": 5, "Put": 5, "MultiGet": 1, "MultiPut": 1}
    assert bounded.meter.call_count == 16
    assert [await passes(get(stub)) for _ in range(6)] == [True] * 4 + [False] * 2
    assert hot_counts(bounded.server)["Get"] == 9
    assert bounded.meter.call_count == 20
    assert bounded.meter.refusals["calls_per_s"] == 2
    bounded.now_s += 0.1
    assert [await passes(get(stub)) for _ in range(3)] == [True] * 2 + [False]
    assert bounded.meter.call_count == 22


async def test_all_connections_of_a_role_take_of_one_rate(bounded: Bounded, stub: Any) -> None:
    bounded.allow("calls_per_s = 5")
    alone = [("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}", alone) as channel:
        other: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        passed = [await passes(get(one)) for _ in range(4) for one in (stub, other)]
    assert passed == [True] * 5 + [False] * 3
    assert bounded.meter.call_count == 5


async def test_the_first_call_of_a_file_that_was_read_anew_goes_by_its_quotas(bounded: Bounded, stub: Any) -> None:
    bounded.engine.put(b"p|1", b"one")
    bounded.allow("calls_per_s = 5")
    assert await passes(get(stub))
    bounded.allow("calls_per_s = 2")
    assert [await passes(get(stub)) for _ in range(3)] == [True, True, False]
    bounded.allow("")
    assert [await passes(get(stub)) for _ in range(9)] == [True] * 9
    assert hot_counts(bounded.server) == {"Get": 12}


async def test_commands_of_hot_batches_are_counted_once(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 100")
    async with bounded.client() as client:
        await client.put("p|1", "1")
        before, batches = bounded.meter.call_count, batches_of(bounded)
        await client.get("p|1")
        assert (bounded.meter.call_count, batches_of(bounded)) == (before + 1, batches + 1)
        # An add of what is no integer is not quick: Python goes on behind the first two, and counts nothing again.
        batch = client.batch()
        batch.get("p|1")
        batch.put("p|2", "2")
        batch.add("p|3", "0.5")
        batch.get("p|2")
        assert (await batch.send())[3] == b"2"
        assert (bounded.meter.call_count, batches_of(bounded)) == (before + 5, batches + 1)
        # One that is too many is refused as a whole, and the next one is counted anew.
        for _ in range(100 - before - 5):
            await client.get("p|1")
        with pytest.raises(QuotaExceededError):
            await client.get("p|1")
        bounded.now_s += 1
        await client.get("p|1")
        assert bounded.meter.call_count == 101


async def test_keys_and_bytes_are_looked_at_before_each_put(bounded: Bounded, stub: Any) -> None:
    bounded.allow("keys = 3\nbytes = 40")
    assert [await passes(put(stub, b"p|%d" % number, b"12")) for number in range(4)] == [True] * 3 + [False]
    assert hot_counts(bounded.server) == {"Put": 2}, "the first one has made the table"
    assert await passes(put(stub, b"p|1", b"34")), "it is there"
    assert await passes(get(stub))
    assert (await stub.Remove(pb.RemoveRequest(key=b"p|0"), metadata=WEB)).removed
    assert [await passes(put(stub, b"p|0", b"1" * size)) for size in (30, 27)] == [False, True]
    assert await passes(put(stub, b"p|1", b""))
    assert not await passes(stub.MultiPut(pb.MultiPutRequest(keys=[b"s|1"], values=[b""]), metadata=WEB))
    assert not await passes(stub.Add(pb.AddRequest(key=b"s|n", delta=b"i1"), metadata=WEB))
    assert bounded.meter.stored() == (3, 38)


async def test_what_one_read_brings_keeps_within_the_quota(bounded: Bounded) -> None:
    bounded.allow("keys = 10")
    async with bounded.client() as client:
        batch = client.batch()
        for number in range(30):
            batch.put(f"p|{number}", "")
        results = await batch.send()
    assert sum(result is None for result in results) == 10
    assert bounded.meter.stored()[0] == 10
