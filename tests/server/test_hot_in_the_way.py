"""Hot calls with something in their way: limits, pressure, the end of a server, TLS, and clients without manners."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.native.http2 import why_absent
from tests.server.certificates import Authority
from tests.server.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RESET,
    WINDOW_UPDATE,
    Stranger,
    bodies_in,
    call,
    fields_in,
    frame,
    heads,
    message,
)
from tests.server.serving import connect
from tests.server.test_hot import GET, hot_counts, served

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
_GET = message(GET.SerializeToString())


def _put(key: bytes) -> bytes:
    return message(pb.PutRequest(key=key, value=b"v").SerializeToString())


def _port(server: Any) -> int:
    return int(server._server._listener._ports[0].socket.getsockname()[1])


async def test_calls_of_a_connection_beyond_the_limit_are_refused_by_name_until_one_goes() -> None:
    async with served(connections_max=1) as (server, stub), connect(_port(server)) as channel:
        assert (await stub.Get(GET)).value == b"one"
        other: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        for request in (other.Get(GET), other.Put(pb.PutRequest(key=b"x|2"))):
            with pytest.raises(aio.AioRpcError, match="connections_max") as caught:
                await request
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status
        assert (await stub.Get(GET)).value == b"one"
        assert hot_counts(server) == {"Get": 2}
        next(iter(server._server.connections)).abort()  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            while hot_counts(server) == {"Get": 2}:
                try:
                    await other.Get(GET)
                except aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    await asyncio.sleep(0.05)


async def test_nothing_is_hot_while_memory_for_messages_is_short() -> None:
    async with served() as (server, stub):
        taken = await server._admission.acquire(server._admission.free_bytes)
        assert (await stub.Get(GET)).value == b"one"
        assert hot_counts(server) == {}
        server._admission.release(taken)
        await stub.Get(GET)
        assert hot_counts(server) == {"Get": 1}


async def test_calls_beyond_those_that_fit_are_refused_while_the_process_is_too_large() -> None:
    async with served(memory_limit="4GiB") as (server, stub):
        pressure, resident = server._admission.pressure, [0]
        pressure._resident, server._calls._at_ease_max = lambda: resident[0], 0
        pressure.calls_at_ease = 0
        assert (await stub.Get(GET)).value == b"one"
        resident[0] = 5 << 30
        await asyncio.sleep(0.02)
        with pytest.raises(aio.AioRpcError, match="memory_limit") as caught:
            await stub.Get(GET)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        resident[0] = 0
        await asyncio.sleep(0.02)
        await stub.Get(GET)
        assert hot_counts(server) == {"Get": 2}


async def test_a_server_that_stops_takes_no_hot_call_and_ends_those_under_way() -> None:
    async with served() as (server, stub):
        stream = stub.Execute()
        await stream.write(pb.ExecuteRequest())
        await stream.read()
        # As `stop` does first; it would also end the stream.
        server._calls.refuse()
        for request in (stub.Get(GET), stub.Put(pb.PutRequest(key=b"x|late"))):
            with pytest.raises(aio.AioRpcError, match="the server is stopping") as caught:
                await request
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await stream.write(pb.ExecuteRequest())
        assert await stream.read() is not aio.EOF
        assert hot_counts(server) == {}
        assert server.engine.get(b"x|late") is None
        stream.cancel()


async def test_calls_are_hot_behind_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "servers")
    pair = authority.sign("server", "localhost")
    files = {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key)}
    async with served(**files) as (server, _):
        credentials = grpc.ssl_channel_credentials(authority.path.read_bytes())
        async with aio.secure_channel(f"localhost:{_port(server)}", credentials) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            replies = await asyncio.gather(*(stub.Get(GET) for _ in range(200)))
            assert {reply.value for reply in replies} == {b"one"}
            await stub.Put(pb.PutRequest(key=b"x|2", value=bytes(50_000)))
            assert len((await stub.Get(pb.GetRequest(key=b"x|2"))).value) == 50_000
        # One whose bytes two reads brought is not hot.
        assert hot_counts(server)["Get"] > 100


async def _told(server: Any, data: bytes, *, shuts: bool = False) -> bytes:
    """Return what a server says to a client that sends some bytes at once."""

    def tell() -> bytes:
        stranger = Stranger(f"127.0.0.1:{_port(server)}")
        stranger.send(data)
        if shuts:
            stranger.socket.shutdown(socket.SHUT_WR)
        received = stranger.until_closed(0.5)
        stranger.close()
        return received

    return await asyncio.to_thread(tell)


async def test_a_put_that_is_reset_before_it_has_run_does_nothing() -> None:
    async with served() as (server, _):
        put = heads("Put")
        data = call(1, put, _put(b"x|reset")) + frame(RESET, 0, 1, (8).to_bytes(4, "big")) + call(3, put, _put(b"x|3"))
        received = await _told(server, data)
        assert fields_in(received)[3]["grpc-status"] == "0"
        assert 1 not in fields_in(received)
        assert (server.engine.get(b"x|reset"), server.engine.get(b"x|3")) == (None, b"v")
        assert hot_counts(server) == {"Put": 1}


async def test_a_reset_after_the_reply_changes_nothing() -> None:
    async with served() as (server, stub):
        stranger = Stranger(f"127.0.0.1:{_port(server)}")
        stranger.send(call(1, heads("Put"), _put(b"x|2")))
        async with asyncio.timeout(20):
            while hot_counts(server) != {"Put": 1}:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        stranger.send(frame(RESET, 0, 1, (8).to_bytes(4, "big")) + call(3, heads("Get"), _GET))
        received = await asyncio.to_thread(stranger.until_closed, 0.5)
        assert [fields_in(received)[stream]["grpc-status"] for stream in (1, 3)] == ["0", "0"]
        assert (await stub.Get(pb.GetRequest(key=b"x|2"))).value == b"v"
        stranger.close()


async def test_a_request_whose_end_comes_later_or_never_waits_for_it() -> None:
    async with served() as (server, stub):
        get = heads("Get")
        begun = frame(HEADERS, END_HEADERS, 1, get) + frame(DATA, 0, 1, _GET[:7])
        stranger = Stranger(f"127.0.0.1:{_port(server)}")
        stranger.send(begun + call(3, get, _GET))
        await stub.Get(GET)
        stranger.send(frame(DATA, 0, 1, _GET[7:]))
        await stub.Get(GET)
        stranger.send(frame(DATA, END_STREAM, 1, b""))
        received = await asyncio.to_thread(stranger.until_closed, 0.5)
        assert bodies_in(received)[1] == bodies_in(received)[3]
        assert hot_counts(server) == {"Get": 3}
        stranger.close()


@pytest.mark.parametrize("body", [b"", _GET[:3], _GET[:7]])
async def test_a_client_that_ends_in_the_middle_is_refused(body: bytes) -> None:
    async with served() as (server, _):
        received = await _told(server, call(1, heads("Get"), body) + call(3, heads("Get"), _GET))
        assert [fields_in(received)[stream]["grpc-status"] for stream in (1, 3)] == ["3", "0"]
        assert hot_counts(server) == {"Get": 1}


async def test_a_client_that_closes_its_side_has_the_replies_of_what_it_sent() -> None:
    async with served() as (server, _):
        data = b"".join(call(stream, heads("Put"), _put(b"x|%03d" % stream)) for stream in range(1, 101, 2))
        received = await _told(server, data, shuts=True)
        assert [fields["grpc-status"] for fields in fields_in(received).values()] == ["0"] * 50
        assert hot_counts(server) == {"Put": 50}


async def test_a_call_is_refused_whose_connection_has_too_many_unread_replies_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pequod_server.memory.admission.WAIT_S", 0.2)
    async with served(messages_bytes_max=1_000_000, message_bytes_max=500_000) as (server, stub):
        await stub.Put(pb.PutRequest(key=b"x|2", value=bytes(400_000)))
        stranger = Stranger(f"127.0.0.1:{_port(server)}")
        get, large = heads("Get"), message(pb.GetRequest(key=b"x|2").SerializeToString())
        # It gives no window back, so that its replies wait.
        stranger.send(b"".join(call(stream, get, large) for stream in (1, 3)))
        await _until(lambda: any(connection.is_crowded for connection in server._server.connections))  # type: ignore[attr-defined]
        scan = call(7, heads("Scan"), message(pb.ScanRequest(first=b"x|", last=b"x}").SerializeToString()))
        stranger.send(call(5, get, _GET) + scan)
        received = bytearray()
        refused = await asyncio.to_thread(_ended, stranger, received, {5, 7})
        for fields in refused.values():
            assert fields["grpc-status"] == str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
            assert "messages_bytes_max" in fields["grpc-message"]
        assert (await stub.Get(GET)).value == b"one"
        # Once it reads, its calls are answered again.
        stranger.send(b"".join(frame(WINDOW_UPDATE, 0, stream, (1 << 20).to_bytes(4, "big")) for stream in (0, 1, 3)))
        stranger.send(call(9, get, _GET))
        answered = await asyncio.to_thread(_ended, stranger, received, {1, 3, 5, 7, 9})
        assert {answered[stream]["grpc-status"] for stream in (1, 3, 9)} == {"0"}
        stranger.close()


async def test_a_call_begins_that_waits_for_room_which_another_connection_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pequod_server.memory.admission.WAIT_S", 1.0)
    async with served(messages_bytes_max=1_600_000, message_bytes_max=500_000) as (server, stub):
        await stub.Put(pb.PutRequest(key=b"x|2", value=bytes(400_000)))
        large = call(1, heads("Get"), message(pb.GetRequest(key=b"x|2").SerializeToString()))
        strangers = [Stranger(f"127.0.0.1:{_port(server)}") for _ in range(2)]
        for held_bytes, stranger in zip((300_000, 600_000), strangers, strict=True):
            # It gives no window back to the stream, so that most of the reply waits.
            stranger.send(frame(WINDOW_UPDATE, 0, 0, (1 << 20).to_bytes(4, "big")) + large)
            await _until(lambda held_bytes=held_bytes: server._server.budget.held_bytes > held_bytes)  # type: ignore[attr-defined, misc]
        waits, goes = strangers
        waits.send(call(3, heads("Get"), _GET))
        await _until(lambda: any(connection.waiting for connection in server._server.connections))  # type: ignore[attr-defined]
        goes.close()
        answered = await asyncio.to_thread(_ended, waits, bytearray(), {3})
        assert answered[3]["grpc-status"] == "0"
        waits.close()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)


def _ended(stranger: Stranger, received: bytearray, streams: set[int]) -> dict[int, dict[str, str]]:
    """Read on until these streams have ended, and return what they got; the others have not ended."""
    ended = dict[int, dict[str, str]]()
    while not streams <= ended.keys():
        received += stranger.socket.recv(1 << 16)
        ended = {stream: fields for stream, fields in fields_in(bytes(received)).items() if "grpc-status" in fields}
    assert ended.keys() == streams
    return ended
