"""How reads end that the native core passes on: the other worker is away or silent, their clients leave, limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.native.http2 import why_absent
from tests.workers.pair import (
    ANSWERED,
    CALL,
    HEAD,
    OTHER,
    RETURNED,
    THEIRS,
    FakeDoor,
    Pair,
    fill,
    give_back,
    make_pair,
    posts,
    value,
)

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there are no hot calls without the native core")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with make_pair(tmp_path) as pair:
        async with pair.stub() as stub:
            await fill(stub)
        await pair.until(lambda: bool(pair.link.is_up))
        yield pair


async def test_a_link_that_is_cut_has_its_calls_begin_anew(pair: Pair) -> None:
    async with FakeDoor(pair) as door, pair.stub() as stub:
        calls = [asyncio.ensure_future(value(stub)) for _ in range(20)]
        await pair.until(lambda: len(door.calls) == 20)
        assert pair.native.relayed_count == 20
        for writer in door.writers:
            writer.transport.abort()
        assert await asyncio.gather(*calls) == [b"post 1"] * 20
    await pair.until(lambda: pair.native.relayed_count == 0)


async def test_a_worker_that_keeps_silent_has_its_calls_begin_anew_and_gets_no_more(pair: Pair) -> None:
    async with FakeDoor(pair) as door, pair.stub() as stub:
        assert await value(stub) == b"post 1"
        assert len(door.calls) == 1
        assert pair.link.is_silent
        assert await value(stub) == b"post 1"
        assert len(door.calls) == 1
        # It speaks again.
        door.writers[-1].write(HEAD.pack(0, 0, RETURNED, 1))
        await pair.until(lambda: not pair.link.is_silent)
        again = asyncio.ensure_future(value(stub))
        await pair.until(lambda: len(door.calls) == 2)
        assert await again == b"post 1"


async def test_a_worker_that_answers_others_is_not_silent_though_one_call_waits(pair: Pair) -> None:
    kept: list[tuple[int, int]] = []

    def answer(_message: bytes, number: int, method: int) -> bytes:
        if kept:
            return give_back(_message, number, method)
        kept.append((number, method))
        return b""

    async with FakeDoor(pair, answer) as door, pair.stub() as stub:
        waiting = asyncio.ensure_future(value(stub))
        await pair.until(lambda: len(door.calls) == 1)
        began_s = time.monotonic()
        # Half of the silence that a worker may keep.
        while time.monotonic() - began_s < 0.5:
            assert await value(stub, OTHER) == b"post 1"
        # It has said something since that call began.
        pair.link.look(0.0, time.monotonic() - began_s)
        assert not pair.link.is_silent
        reply = pb.GetReply(value=b"of the other worker").SerializeToString()
        framed = bytes([0]) + len(reply).to_bytes(4, "big") + reply
        door.writers[-1].write(HEAD.pack(len(framed), kept[0][0], ANSWERED, kept[0][1]) + framed)
        assert await waiting == b"of the other worker"


async def test_a_call_ends_at_its_deadline_though_nothing_comes(pair: Pair) -> None:
    async with FakeDoor(pair) as door, pair.stub() as stub:
        began_s = time.monotonic()
        # Python's way stands still as well.
        await pair.home._server.stop(None)
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Get(pb.GetRequest(key=b"note|1"), timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - began_s >= 0.5
        assert len(door.calls) == 1
    await pair.until(lambda: pair.native.relayed_count == 0)


async def test_a_call_with_little_time_is_a_call_as_any(pair: Pair) -> None:
    async with FakeDoor(pair) as door, pair.stub() as stub:
        await asyncio.gather(*(value(stub, timeout=0.08) for _ in range(5)), return_exceptions=True)
        assert door.calls == []


async def test_the_wait_at_another_worker_counts_for_the_deadline(pair: Pair) -> None:
    seen: list[float | None] = []
    assert pair.compute._passing is not None
    link = pair.compute._passing.link("w0")

    async def get(_request: Any, **call: Any) -> pb.GetReply:
        seen.append(call["timeout"])
        return pb.GetReply(value=b"late")

    link.stub.Get = get
    async with FakeDoor(pair), pair.stub() as stub:
        assert await value(stub, timeout=30) == b"late"
        assert await value(stub, timeout=0.8) == b"late"
    # A second of silence; and some time before the deadline.
    assert seen[0] is not None and 25 < seen[0] < 29.1
    assert pair.link.is_silent or (seen[1] is not None and seen[1] < 0.8)


async def test_a_call_that_its_client_cancels_is_forgotten(pair: Pair) -> None:
    answers: list[bytes] = []

    def keep(message: bytes, number: int, method: int) -> bytes:
        answers.append(HEAD.pack(5, number, ANSWERED, method) + bytes(5))
        return b""

    async with FakeDoor(pair, keep) as door, pair.stub() as stub:
        call = stub.Get(pb.GetRequest(key=posts(THEIRS)[1]))
        waiting = asyncio.ensure_future(call)
        await pair.until(lambda: len(door.calls) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        door.writers[-1].write(answers[0])
        await pair.until(lambda: pair.native.relayed_count == 0)
        door.answer = give_back
        assert await value(stub) == b"post 1"


async def test_replies_that_come_in_another_order_are_each_their_calls(pair: Pair) -> None:
    asked: list[tuple[bytes, int, int]] = []

    def keep(message: bytes, number: int, method: int) -> bytes:
        asked.append((message, number, method))
        return b""

    async with FakeDoor(pair, keep) as door, pair.stub() as stub:
        calls = [asyncio.ensure_future(stub.Get(pb.GetRequest(key=key))) for key in posts(THEIRS)]
        await pair.until(lambda: len(asked) == 5)
        for message, number, method in reversed(asked):
            reply = pb.GetReply(value=pb.GetRequest.FromString(message).key).SerializeToString()
            framed = bytes([0]) + len(reply).to_bytes(4, "big") + reply
            door.writers[-1].write(HEAD.pack(len(framed), number, ANSWERED, method) + framed)
        assert [reply.value for reply in await asyncio.gather(*calls)] == posts(THEIRS)


async def test_a_client_that_leaves_while_its_calls_are_away_does_no_harm(pair: Pair) -> None:
    async with FakeDoor(pair) as door:
        async with pair.stub() as stub:
            calls = [asyncio.ensure_future(value(stub)) for _ in range(10)]
            await pair.until(lambda: len(door.calls) == 10)
        await asyncio.gather(*calls, return_exceptions=True)
        await pair.until(lambda: pair.native.relayed_count == 0)
        async with pair.stub() as stub:
            assert await value(stub) == b"post 1"


async def test_calls_beyond_the_limit_are_refused_with_those_that_are_away(tmp_path: Path) -> None:
    async with make_pair(tmp_path, calls_max=4) as pair, pair.stub() as stub:
        await fill(stub)
        await pair.until(lambda: bool(pair.link.is_up))
        async with FakeDoor(pair) as door:
            calls = [asyncio.ensure_future(value(stub)) for _ in range(4)]
            await pair.until(lambda: len(door.calls) == 4)
            with pytest.raises(aio.AioRpcError) as caught:
                await value(stub)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await asyncio.gather(*calls) == [b"post 1"] * 4
        await pair.until(lambda: bool(pair.link.is_up))
        async with FakeDoor(pair) as door:
            # Of those that come with one read of the socket, no more go away either.
            found = await asyncio.gather(*(value(stub) for _ in range(30)), return_exceptions=True)
            assert len(door.calls) <= 4
            assert found.count(b"post 1") >= 4


async def test_a_server_that_stops_waits_for_calls_that_are_away(tmp_path: Path) -> None:
    held: list[tuple[int, int]] = []

    def hold(message: bytes, number: int, method: int) -> bytes:
        held.append((number, method))
        return b""

    async with make_pair(tmp_path) as pair, pair.stub() as stub:
        await fill(stub)
        await pair.until(lambda: bool(pair.link.is_up))
        async with FakeDoor(pair, hold) as door:
            call = asyncio.ensure_future(value(stub))
            await pair.until(lambda: len(held) == 1)
            stopping = asyncio.ensure_future(pair.compute.stop())
            await asyncio.sleep(0.1)
            assert not stopping.done()
            reply = pb.GetReply(value=b"in time").SerializeToString()
            message = bytes([0]) + len(reply).to_bytes(4, "big") + reply
            number, method = held[0]
            door.writers[-1].write(HEAD.pack(len(message), number, ANSWERED, method) + message)
            assert await call == b"in time"
            await stopping


async def test_what_is_no_link_ends_a_connection_and_nothing_else(pair: Pair) -> None:
    path = str(pair.folder / "w0.relay.sock")
    for nonsense in (HEAD.pack(1 << 30, 0, CALL, 1), HEAD.pack(0, 0, 77, 0)):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(nonsense)
        with pytest.raises(ConnectionError):
            if await reader.read() == b"":
                raise ConnectionError
        writer.close()
    # Only reads are answered.
    async with pair.stub() as stub:
        await stub.Put(pb.PutRequest(key=b"note|1", value=b"1"))
    reader, writer = await asyncio.open_unix_connection(path)
    message = pb.PutRequest(key=b"note|9", value=b"no").SerializeToString()
    writer.write(HEAD.pack(len(message), 5, CALL, 2) + message)
    assert HEAD.unpack(await reader.readexactly(HEAD.size)) == (0, 5, RETURNED, 2)
    writer.close()
    async with pair.stub() as stub:
        assert not (await stub.Get(pb.GetRequest(key=b"note|9"))).HasField("value")
