"""Batches as columns: what each kind takes and gives, and what is refused."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.commands import (
    ABSENT,
    COUNT,
    FAILED,
    GET,
    OK,
    PUT,
    REMOVE,
    SCAN,
    SCAN_DOWN,
    SCAN_LIMIT,
    TRUNCATED,
)
from pequod_server import PequodServer


async def _execute(
    stub: Any, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...] = ()
) -> pb.ExecuteReply:
    call = stub.Execute()
    await call.write(pb.ExecuteRequest(batch=7, kinds=bytes(kinds), arguments=arguments, numbers=numbers))
    reply = await call.read()
    await call.done_writing()
    assert await call.read() is aio.EOF
    assert isinstance(reply, pb.ExecuteReply)
    return reply


async def test_every_kind(stub: Any, server: PequodServer) -> None:
    kinds = [PUT, PUT, PUT, GET, GET, SCAN, SCAN, SCAN_LIMIT, SCAN_DOWN, SCAN_DOWN, COUNT, COUNT, REMOVE, REMOVE]
    arguments = [b"a", b"1", b"b", b"2", b"c", b"3", b"b", b"no", b"a", b"c", b"b", b""]
    arguments += [b"", b"", b"", b"", b"", b"c", b"a", b"c", b"", b"", b"a", b"a"]
    reply = await _execute(stub, kinds, arguments, (2, 1, 0))
    assert list(reply.statuses) == [OK, OK, OK, OK, ABSENT, OK, OK, OK, OK, OK, OK, OK, OK, ABSENT]
    assert list(reply.counts) == [2, 2, 2, 1, 2, 2, 3]
    assert list(reply.keys) == [b"a", b"b", b"b", b"c", b"a", b"b", b"c", b"b", b"a"]
    assert list(reply.values) == [b"2", b"1", b"2", b"2", b"3", b"1", b"2", b"3", b"2", b"1"]
    assert (reply.batch, reply.revision) == (7, server.engine.revision)
    assert reply.server_id == server.service.server_id


async def test_a_command_that_fails_does_not_stop_the_others(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text="o|<a> = copy x|<a>"))
    reply = await _execute(stub, [PUT, PUT, PUT, SCAN], [b"x|1", b"v", b"o|1", b"no", b"", b"no", b"o|", b"o}"])
    assert list(reply.statuses) == [OK, FAILED, FAILED, OK]
    assert [error.reason for error in reply.errors] == ["ComputedKeyError", "InvalidKeyError"]
    assert reply.errors[0].code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert dict(reply.errors[0].facts) == {"key_hex": b"o|1".hex(), "join": "o"}
    assert list(reply.keys) == [b"o|1"]


@pytest.mark.parametrize(
    ("kinds", "arguments", "numbers", "message"),
    [
        ([PUT], [b"k"], (), "take 2 arguments, not 1"),
        ([PUT, GET], [b"k", b"v", b"k", b"k"], (), "take 3 arguments, not 4"),
        ([SCAN_LIMIT], [b"", b""], (), "take 1 numbers, not 0"),
        ([SCAN], [b"", b""], (1,), "take 0 numbers, not 1"),
        ([PUT, 9], [b"k", b"v"], (), "no command of kind 9"),
        ([0], [], (), "no command of kind 0"),
    ],
)
async def test_columns_that_do_not_fit_end_the_stream_and_change_nothing(
    stub: Any, server: PequodServer, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...], message: str
) -> None:
    call = stub.Execute()
    await call.write(pb.ExecuteRequest(kinds=bytes(kinds), arguments=arguments, numbers=numbers))
    with pytest.raises(aio.AioRpcError, match=message) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.engine.revision == 0


async def test_long_scans_are_cut_where_the_reply_would_grow_too_long(stub: Any) -> None:
    for number in range(60):
        await stub.Put(pb.PutRequest(key=b"x|%02d" % number, value=b"*" * 96))
    reply = await _execute(stub, [SCAN, SCAN], [b"x|", b"x}", b"x|", b"x}"])
    assert list(reply.statuses) == [TRUNCATED, TRUNCATED]
    assert list(reply.counts) == [18, 0], "2,000 bytes in all, 8 of them for each row beside keys and values"
    down = await _execute(stub, [SCAN_DOWN, SCAN_LIMIT, SCAN_LIMIT], [b"x|", b"x}"] * 3, (30, 30, 2))
    assert list(down.statuses) == [TRUNCATED, TRUNCATED, TRUNCATED]
    few = await _execute(stub, [SCAN_LIMIT, SCAN_DOWN], [b"x|", b"x}"] * 2, (3, 4))
    assert (list(few.statuses), list(few.counts)) == ([OK, OK], [3, 4])


async def test_streams_live_side_by_side(stub: Any) -> None:
    async def run(name: int) -> None:
        call = stub.Execute()
        for number in range(50):
            key = b"k%d|%03d" % (name, number)
            await call.write(
                pb.ExecuteRequest(batch=number, kinds=bytes([PUT, GET]), arguments=[key, b"%d" % number, key])
            )
            reply = await call.read()
            assert (reply.batch, list(reply.values)) == (number, [b"%d" % number])
        await call.done_writing()

    await asyncio.gather(*map(run, range(5)))


async def test_a_reply_without_room_leaves_reads_to_be_asked_again(stub: Any, server: PequodServer) -> None:
    for number in range(4):
        server.engine.put(b"k%d" % number, b"v" * 1500)
    kinds = [GET, GET, SCAN, PUT, SCAN_DOWN, GET]
    arguments = [b"k0", b"k1", b"k", b"l", b"k9", b"1", b"k", b"l", b"k9"]
    reply = await _execute(stub, kinds, arguments, (1,))
    assert list(reply.statuses) == [OK, TRUNCATED, TRUNCATED, OK, TRUNCATED, TRUNCATED]
    assert (list(reply.values), list(reply.keys), list(reply.counts)) == ([b"v" * 1500], [], [0, 0])
    assert server.engine.get(b"k9") == b"1"


async def test_the_first_read_gets_a_row_however_large(stub: Any, server: PequodServer) -> None:
    for number in range(3):
        server.engine.put(b"k%d" % number, b"v" * 5000)
    reply = await _execute(stub, [SCAN, SCAN], [b"k", b"l", b"k", b"l"])
    assert (list(reply.statuses), list(reply.keys), list(reply.counts)) == ([TRUNCATED, TRUNCATED], [b"k0"], [1, 0])
    reply = await _execute(stub, [GET, GET], [b"k1", b"k0"])
    assert (list(reply.statuses), len(reply.values)) == ([OK, TRUNCATED], 1)
