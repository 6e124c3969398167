"""Calls that have begun: thousands at once, and those whose requests do not come; clients are not ours."""

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.memory.begun import connection_streams_max
from pequod_server.wire.under_way import queue_options

from pequod.commands.kinds import GET as GET_KIND
from tests.server.serving import connect
from tests.soak.unfinished import Bodiless

_SERVICE = "/pequod.v1.Pequod/"
GET = _SERVICE + "Get"
MIB = 1 << 20
#: What messages may take under two limits of memory. The tests' own process may be beyond them.
UNDER_256_MIB = {"memory_limit": "none", "message_bytes_max": 4 * MIB, "messages_bytes_max": 16 * MIB}
UNDER_4_GIB = {"memory_limit": "none", "message_bytes_max": 64 * MIB, "messages_bytes_max": 256 * MIB}
#: A connection of its own, though the target is the same.
_ALONE = [("grpc.use_local_subchannel_pool", 1)]
REQUEST = pb.GetRequest(key=b"k").SerializeToString()


async def _started(**settings: Any) -> tuple[PequodServer, str]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.1, **settings))
    return server, f"127.0.0.1:{await server.start()}"


async def _gets(channel: aio.Channel, count: int) -> Counter[str]:
    """Begin Gets at once, and count how they ended."""
    get: Any = channel.unary_unary(GET)
    outcomes = await asyncio.gather(*[get(REQUEST) for _ in range(count)], return_exceptions=True)
    return Counter(outcome.code().name if isinstance(outcome, grpc.RpcError) else "OK" for outcome in outcomes)


async def _replies_of(call: Any, request: bytes) -> str:
    """Return that a stream has answered, or how it has ended."""
    try:
        await call.write(request)
        if await call.read() is not aio.EOF:
            return "replies"
    except (grpc.RpcError, asyncio.InvalidStateError):
        pass
    return f"{(await call.code()).name} {await call.details()}"


async def _reply_of(call: Any) -> str:
    """Return that a call has answered, or how it has ended."""
    try:
        if await call.read() is not aio.EOF:
            return "replies"
    except grpc.RpcError:
        pass
    return f"{(await call.code()).name} {await call.details()}"


@pytest.mark.parametrize("first_bytes", [b"", b"\0\0\0"])
@pytest.mark.parametrize("sizes", [UNDER_256_MIB, UNDER_4_GIB])
async def test_calls_whose_requests_do_not_come_delay_nobody_else(sizes: dict[str, Any], first_bytes: bytes) -> None:
    server, target = await _started(**sizes)
    silent = Bodiless(target, GET)
    async with aio.insecure_channel(target) as channel, asyncio.timeout(60):
        get: Any = channel.unary_unary(GET)
        for _ in range(150):
            silent.begin(10, first_bytes)
            await get(REQUEST)
    # One queue for all would have given each of them a place before the last Get.
    assert len(server._admission.places.late) < 1500 / 2
    server._admission.places._check()
    silent.close()
    await server.close()


async def test_new_connections_whose_requests_do_not_come_delay_no_known_one() -> None:
    server, target = await _started(**UNDER_256_MIB)
    silent: list[Bodiless] = []
    async with aio.insecure_channel(target) as channel, asyncio.timeout(60):
        get: Any = channel.unary_unary(GET)
        for _ in range(200):
            await get(REQUEST)
            silent.append(Bodiless(target, GET))
            silent[-1].begin(1)
        async with asyncio.timeout(30), connect(int(target.rpartition(":")[2])) as other:
            assert await _gets(other, 10) == {"OK": 10}
    for connection in silent:
        connection.close()
    await server.close()


@pytest.mark.parametrize(
    ("settings", "count"),
    [({"memory_limit": "256MiB"}, 10_000), ({"memory_limit": "4GiB"}, 20_971), ({"memory_limit": "none"}, 100_000)],
)
def test_as_many_calls_may_begin_as_memory_has_room_for(settings: dict[str, Any], count: int) -> None:
    options = dict(queue_options(ServerConfig(**settings)))
    assert options["grpc.server.max_pending_requests"] == count
    assert options["grpc.server.max_pending_requests_hard_limit"] == count
    assert (
        dict(queue_options(ServerConfig(**settings, calls_max=200_000)))["grpc.server.max_pending_requests"] == 200_000
    )


@pytest.mark.parametrize(
    ("settings", "streams", "calls", "unread_bytes"),
    [
        ({"memory_limit": "256MiB"}, 491, 654, 4096),
        ({"memory_limit": "1GiB"}, 1965, 2620, 16_384),
        ({"memory_limit": "4GiB"}, 7863, 10_484, 65_535),
        ({"memory_limit": "none"}, 750_000, 1_000_000, 65_535),
        ({"memory_limit": "256MiB", "connection_streams_max": 20}, 20, 183, 4096),
    ],
)
def test_a_client_is_told_how_many_calls_fit_and_how_much_of_them(
    settings: dict[str, Any], streams: int, calls: int, unread_bytes: int
) -> None:
    config = ServerConfig(**settings)
    options = dict(queue_options(config))
    assert connection_streams_max(config) == streams
    assert options["grpc.max_concurrent_streams"] == calls
    assert options["grpc.http2.lookahead_bytes"] == unread_bytes


async def test_gets_that_do_not_fit_wait_with_their_client_and_are_all_answered() -> None:
    server, target = await _started(memory_limit="1GiB", connection_streams_max=1)
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, len(server._calls._under_way))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    async with aio.insecure_channel(target) as channel:
        assert await _gets(channel, 3000) == {"OK": 3000}
    looking.cancel()
    assert 1 < most <= 1 + 655
    await server.close()


async def test_streams_of_a_connection_beyond_their_limit_are_refused_by_name() -> None:
    server, target = await _started(connection_streams_max=3)
    async with aio.insecure_channel(target) as channel, aio.insecure_channel(target, _ALONE) as other:
        watches: list[Any] = [channel.stream_stream(_SERVICE + "Watch")() for _ in range(5)]
        request = pb.WatchRequest(first=b"k").SerializeToString()
        refused = (
            "RESOURCE_EXHAUSTED connection_streams_max is 3, and this needs 4; send less, or raise "
            "connection_streams_max"
        )
        outcomes = [await _replies_of(watch, request) for watch in watches]
        assert outcomes == ["replies"] * 3 + [refused] * 2
        assert await _gets(channel, 100) == {"OK": 100}
        scan: Any = channel.unary_stream(_SERVICE + "Scan")
        assert [chunk async for chunk in scan(b"")], "a scan ends by itself, and does not count"
        assert await _replies_of(other.stream_stream(_SERVICE + "Watch")(), request) == "replies"
        for watch in watches:
            watch.cancel()
        async with asyncio.timeout(10):
            while await _replies_of(channel.stream_stream(_SERVICE + "Watch")(), request) == refused:
                pass
    await server.close()


async def test_five_thousand_gets_that_begin_at_once_are_all_answered() -> None:
    server, target = await _started()
    async with aio.insecure_channel(target) as channel:
        assert await _gets(channel, 5000) == {"OK": 5000}
    await server.close()


async def test_three_thousand_feeds_that_begin_at_once_on_one_connection_are_all_fed() -> None:
    server, target = await _started(memory_limit="none")
    async with aio.insecure_channel(target) as channel:
        calls: list[Any] = [channel.stream_stream("/pequod.v1.PequodPeer/Feed")() for _ in range(3000)]
        hellos = [pb.PeerFeedHello(feed=number + 1, version_min=1, version_max=99) for number in range(3000)]
        requests = [pb.PeerFeedRequest(hello=hello).SerializeToString() for hello in hellos]
        outcomes = await asyncio.gather(*map(_replies_of, calls, requests))
        assert Counter(outcomes) == {"replies": 3000}
        for call in calls:
            call.cancel()
    await server.close()


async def test_calls_beyond_the_limit_on_calls_are_refused_with_what_to_do() -> None:
    server, target = await _started(calls_max=100)
    async with aio.insecure_channel(target) as channel:
        watch: Any = channel.unary_stream(_SERVICE + "Watch")
        request = pb.WatchRequest(first=b"k").SerializeToString()
        # One request, not a stream of them: gRPC's client says INTERNAL if a refusal comes before its first write.
        outcomes = Counter(await asyncio.gather(*[_reply_of(watch(request)) for _ in range(4000)]))
        assert outcomes.pop("replies") == 100
        assert set(outcomes) == {
            "RESOURCE_EXHAUSTED calls_max is 100, and this needs 101; send less, or raise calls_max"
        }
    await server.close()


async def test_a_call_whose_request_does_not_come_makes_way_where_calls_max_is_reached() -> None:
    server, target = await _started(calls_max=50)
    silent = Bodiless(target, GET)
    silent.begin(50)
    async with aio.insecure_channel(target) as channel, asyncio.timeout(60):
        while not server._admission.places.late or len(server._calls._under_way) < 50:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        get: Any = channel.unary_unary(GET)
        for _ in range(45):
            await get(REQUEST)
            silent.begin(1)
        assert await _gets(channel, 20) == {"OK": 20}
        server._admission.places._check()
    silent.close()
    await server.close()


async def test_a_stream_whose_first_batch_does_not_come_makes_way_where_streams_max_is_reached() -> None:
    server, target = await _started(streams_max=20)
    silent = Bodiless(target, _SERVICE + "Execute")
    silent.begin(20)
    async with aio.insecure_channel(target) as channel, asyncio.timeout(60):
        while not server._admission.places.late or len(server._calls._streams) < 20:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        batch = pb.ExecuteRequest(kinds=bytes([GET_KIND]), arguments=[b"k"]).SerializeToString()
        streams: list[Any] = []
        replies = []
        # One after the other: streams that are opened together, and used later, keep their batches back as well.
        for _ in range(15):
            streams.append(channel.stream_stream(_SERVICE + "Execute")())
            replies.append(await _replies_of(streams[-1], batch))
        assert replies == ["replies"] * 15
        for stream in streams:
            stream.cancel()
    silent.close()
    await server.close()
