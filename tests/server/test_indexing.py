"""Indexes over records that reads lack: made in slices, between which other calls are served."""

import asyncio
from typing import Any

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto import pequod_pb2_grpc as rpc
from pequod_server import ServerConfig
from pequod_server.database import slicing

from pequod.commands.kinds import COUNT, GET, PUT, SCAN
from pequod.engine import Engine
from pequod.engine.joins import indexes
from tests.server.serving import connect, serving

BY = "by|<a>|<id> = copy item|<id> with a = <a> as b"
ROWS = 400
SLICE = 4


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "SLICE_ROWS", SLICE)
    monkeypatch.setattr(slicing, "SLICE_S", 0.0)


def _stub(channel: aio.Channel) -> Any:
    return rpc.PequodStub(channel)  # type: ignore[no-untyped-call]


async def _fill(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=BY))
    keys = [b"item|%03d" % number for number in range(ROWS)]
    values = [b'{"a": %d, "b": %d}' % (number % 10, number) for number in range(ROWS)]
    await stub.MultiPut(pb.MultiPutRequest(keys=keys, values=values))


async def _scanned(stub: Any, first: bytes, last: bytes) -> list[bytes]:
    return [key async for chunk in stub.Scan(pb.ScanRequest(first=first, last=last)) for key in chunk.keys]


def _group(number: int) -> list[bytes]:
    return [b"by|%d|%03d" % (number, at) for at in range(number, ROWS, 10)]


async def test_other_calls_are_answered_while_an_index_is_made() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel, connect(port) as other:
        stub, others = _stub(channel), _stub(other)
        await _fill(stub)
        reading = asyncio.create_task(_scanned(stub, b"by|3|", b"by|3}"))
        answered = 0
        while not reading.done():
            # A put between two slices is in the rows that the read returns.
            await others.Put(pb.PutRequest(key=b"item|%03d" % answered, value=b'{"a": 3, "b": 0}'))
            answered += 1
        found = await reading
        assert answered > 1, "the read took many turns of the loop"
        assert await _scanned(others, b"by|3|", b"by|3}") == sorted(
            {*_group(3), *(b"by|3|%03d" % number for number in range(answered))}
        )
        assert set(_group(3)) <= set(found)


async def test_readers_of_many_groups_share_one_index(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = 0
    index_some = Engine.index_some

    def counted(engine: Engine, lacking: Any) -> bool:
        nonlocal slices
        slices += 1
        return index_some(engine, lacking)

    monkeypatch.setattr(Engine, "index_some", counted)
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        stub = _stub(channel)
        await _fill(stub)
        found = await asyncio.gather(*[_scanned(stub, b"by|%d|" % one, b"by|%d}" % one) for one in range(10)])
        assert found == [_group(one) for one in range(10)]
        assert slices == ROWS // SLICE + 1


async def test_every_kind_of_read_waits_for_the_index(stub_with_rows: Any) -> None:
    stub = stub_with_rows

    async def again() -> None:
        await stub.DropJoin(pb.DropJoinRequest(name="by"))
        await stub.AddJoin(pb.AddJoinRequest(text=BY))

    assert (await stub.Count(pb.CountRequest(first=b"by|3|", last=b"by|3}"))).count == ROWS // 10
    await again()
    batch = pb.ExecuteRequest(
        kinds=bytes([PUT, SCAN, GET, COUNT]),
        arguments=[b"item|x", b'{"a": 3, "b": 1}', b"by|3|", b"by|3}", b"by|4|004", b"by|5|", b"by|5}"],
    )
    call = stub.Execute()
    await call.write(batch)
    reply = await call.read()
    assert list(reply.keys)[: ROWS // 10 + 1] == [*_group(3), b"by|3|x"]
    assert not reply.errors
    await call.done_writing()
    await again()
    watch = stub.Watch(pb.WatchRequest(first=b"by|6|", last=b"by|6}", rows=True))
    assert list((await watch.read()).keys) == _group(6)
    watch.cancel()


@pytest.fixture
async def stub_with_rows() -> Any:
    """A client of a server with rows and the join."""
    async with serving(ServerConfig(listen="127.0.0.1:0", rows_max=8192)) as port, connect(port) as channel:
        stub = _stub(channel)
        await _fill(stub)
        yield stub


async def test_the_index_outlives_the_reader_that_began_it(stub_with_rows: Any) -> None:
    call = stub_with_rows.Scan(pb.ScanRequest(first=b"by|3|", last=b"by|3}"))
    await asyncio.sleep(0)
    call.cancel()
    assert await _scanned(stub_with_rows, b"by|4|", b"by|4}") == _group(4)
