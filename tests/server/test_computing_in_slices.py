"""Long ranges that reads have computed: in slices, between which other calls are served."""

import asyncio
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto import pequod_pb2_grpc as rpc
from pequod_server import ServerConfig
from pequod_server.database import slicing

from pequod.commands.kinds import COUNT, SCAN, SCAN_DOWN
from pequod.engine.reads import reach
from tests.server.serving import connect, serving

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
d|<user>|<time:4>|<poster> = copy t|<user>|<time:4>|<poster>
"""
USERS = 300


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SLICE_KEYS", 4)
    monkeypatch.setattr(slicing, "SLICE_S", 0.0)


def _stub(channel: Any) -> Any:
    return rpc.PequodStub(channel)  # type: ignore[no-untyped-call]


async def _fill(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=JOINS))
    keys = [b"s|u%03d|bob" % number for number in range(USERS)]
    await stub.MultiPut(pb.MultiPutRequest(keys=[*keys, b"p|bob|0100"], values=[*[b"1"] * USERS, b"Hi"]))


async def _beside(read: Any, stub: Any) -> tuple[Any, int]:
    """Return what a call reads, and how many others were answered meanwhile; each is a post for all users."""
    reading, answered = asyncio.ensure_future(read), 0
    while not reading.done():
        await stub.Put(pb.PutRequest(key=b"p|bob|%04d" % answered, value=b"Hi"))
        answered += 1
    return await reading, answered


async def test_other_calls_are_answered_while_a_table_is_computed_for_a_count() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel, connect(port) as other:
        await _fill(_stub(channel))
        reply, answered = await _beside(_stub(channel).Count(pb.CountRequest(first=b"d|", last=b"d}")), _stub(other))
        assert answered > 1, "the count took many turns of the loop"
        assert reply.count % USERS == 0, "of one moment"
        again = await _stub(other).Count(pb.CountRequest(first=b"d|", last=b"d}"))
        assert again.count == USERS * (answered + (answered <= 100))


async def test_every_kind_of_read_has_a_table_computed_in_slices() -> None:
    keys = [b"d|u%03d|0100|bob" % number for number in range(USERS)]
    for kind in (COUNT, SCAN, SCAN_DOWN):
        async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
            stub = _stub(channel)
            await _fill(stub)
            call = stub.Execute()
            await call.write(
                pb.ExecuteRequest(kinds=bytes([kind]), arguments=[b"d|", b"d}"], numbers=[0] * (kind == SCAN_DOWN))
            )
            found: list[bytes] = []
            count = 0
            await call.done_writing()
            async for reply in call:
                assert not reply.errors
                found += reply.keys
                count += sum(reply.counts)
            assert sorted(found) == ([] if kind == COUNT else keys)
            assert kind != COUNT or count == USERS
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        await _fill(_stub(channel))
        watch = _stub(channel).Watch(pb.WatchRequest(first=b"d|", last=b"d}", rows=True))
        assert list((await watch.read()).keys) == keys
        watch.cancel()
