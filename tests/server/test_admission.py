"""The pool of bytes that messages on their way take: who waits, who is refused, and what is given back."""

import asyncio
from typing import Any

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.memory.admission import COPIES, Admission, message_bytes_max, messages_bytes_max

from pequod.engine import LimitExceededError
from tests.server.serving import connect

MIB = 1 << 20


def _admission(bytes_max: int = 1000) -> Admission:
    return Admission(ServerConfig(messages_bytes_max=bytes_max))


async def _hold(admission: Admission, count: int, until: asyncio.Event) -> None:
    async with admission.bytes(count):
        await until.wait()


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("default_settings")
def test_limits_of_messages_follow_the_limit_of_memory_unless_they_are_set() -> None:
    for limit, longest, together in (("256MiB", 4, 16), ("1GiB", 16, 64), ("64GiB", 64, 4096), ("none", 64, 1024)):
        config = ServerConfig(memory_limit=limit)
        assert (message_bytes_max(config), messages_bytes_max(config)) == (longest * MIB, together * MIB)
    config = ServerConfig(memory_limit="256MiB", message_bytes_max=7, messages_bytes_max=9)
    assert (message_bytes_max(config), messages_bytes_max(config)) == (7, 9)


async def test_those_who_wait_are_served_in_their_order() -> None:
    admission, ends = _admission(), [asyncio.Event() for _ in range(3)]
    tasks = [
        asyncio.create_task(_hold(admission, count, end)) for count, end in zip((800, 600, 100), ends, strict=True)
    ]
    await _turn()
    assert admission.free_bytes == 200, "the last would fit, but waits for its turn"
    ends[0].set()
    await _turn()
    assert admission.free_bytes == 300
    ends[1].set()
    ends[2].set()
    await asyncio.gather(*tasks)
    assert admission.free_bytes == 1000


async def test_one_who_leaves_lets_the_others_by() -> None:
    admission, end = _admission(), asyncio.Event()
    first, second, third = (asyncio.create_task(_hold(admission, count, end)) for count in (800, 600, 100))
    await _turn()
    second.cancel()
    await _turn()
    assert admission.free_bytes == 100
    end.set()
    await asyncio.gather(first, third)
    assert admission.free_bytes == 1000


async def test_one_who_is_cancelled_when_admitted_gives_back() -> None:
    admission, end = _admission(), asyncio.Event()
    first, second = (asyncio.create_task(_hold(admission, 800, end)) for _ in range(2))
    await _turn()
    end.set()
    first.cancel()
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert admission.free_bytes == 1000


async def test_one_who_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.memory.admission.WAIT_S", 0.05)
    admission = _admission()
    async with admission.bytes(800):
        with pytest.raises(LimitExceededError, match="messages_bytes_max is 1000") as refused:
            async with admission.bytes(300):
                pytest.fail("there is no room")
        assert (refused.value.setting, refused.value.size) == ("messages_bytes_max", 1100)
    async with admission.bytes(5000) as held:
        assert held == 1000, "nobody needs more than everything"
    assert admission.free_bytes == 1000


async def test_parts_become_smaller_and_leave_something_for_others() -> None:
    admission, end = _admission(16 * MIB), asyncio.Event()
    granted: list[int] = []

    async def hold() -> None:
        async with admission.some(MIB) as count:
            granted.append(count)
            await end.wait()

    tasks = [asyncio.create_task(hold()) for _ in range(200)]
    await _turn()
    assert len(granted) == 200
    assert granted == sorted(granted, reverse=True)
    assert granted[0] == MIB
    assert granted[-1] == 16 << 10
    end.set()
    await asyncio.gather(*tasks)
    assert admission.free_bytes == 16 * MIB


async def test_a_request_that_does_not_come_gives_its_place_to_others() -> None:
    admission, never = Admission(ServerConfig(messages_bytes_max=1, message_bytes_max=1000)), asyncio.Event()

    async def come() -> bytes:
        return b""

    async def stay_away() -> bytes:
        await never.wait()
        return b""

    silent = [asyncio.create_task(admission.read("peer", stay_away)) for _ in range(20)]
    async with asyncio.timeout(10):
        await asyncio.gather(*(admission.read("peer", come) for _ in range(20)))
    never.set()
    await asyncio.gather(*silent)
    async with asyncio.timeout(10):
        await asyncio.gather(*(admission.read("peer", come) for _ in range(20)))
    admission.places._check()


async def test_the_first_rows_of_a_watch_come_in_as_many_replies_as_there_is_memory_for() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", messages_bytes_max=100_000))
    port = await server.start()
    rows = {b"k|%03d" % number: bytes(20_000 if number == 7 else 1_000) for number in range(100)}
    for row in rows.items():
        server.engine.put(*row)
    async with connect(port) as channel:
        watch: Any = PequodStub(channel).Watch(pb.WatchRequest(first=b"", rows=True))  # type: ignore[no-untyped-call]
        told: dict[bytes, bytes] = {}
        lengths = []
        async for reply in watch:
            if reply.ready:
                break
            told.update(zip(reply.keys, reply.values, strict=True))
            lengths.append(sum(map(len, reply.values)))
        assert told == rows
        *small, longest = sorted(lengths)
        assert longest == 20_000
        assert small[-1] <= 4096
    await server.close()


async def test_a_reply_counts_until_its_client_has_taken_it() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    server.engine.put(b"k", bytes(1 << 20))
    async with aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.http2.bdp_probe", 0)]) as channel:
        admission = server._admission
        get: Any = channel.unary_stream("/pequod.v1.Pequod/Get")
        call = get(pb.GetRequest(key=b"k").SerializeToString())
        async with asyncio.timeout(10):
            while admission.free_bytes == admission.bytes_max:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        assert admission.bytes_max - admission.free_bytes >= COPIES << 20
        await call.read()
        async with asyncio.timeout(10):
            while admission.free_bytes < admission.bytes_max:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
    await server.close()
