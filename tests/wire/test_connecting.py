"""Connections of the native channel, with servers that answer frames by hand: failures, pauses, ends of all kinds."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable

import grpc
import pytest
from grpc import aio

from pequod.native.http2 import why_absent
from pequod.wire import connecting
from pequod.wire.channel import NativeChannel
from pequod.wire.ends import NOT_BEGUN
from tests.server.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RESET,
    WINDOW_UPDATE,
    block,
    frame,
    message,
)
from tests.wire.echoing import ECHO, ByHand, channel_to, comes, echoing, greeting, next_frame, until

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
READY, FAILED = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


BEGIN = block((":status", "200"), ("content-type", "application/grpc"))
WELL = block(("grpc-status", "0"))


def reply(stream: int, body: bytes) -> bytes:
    """Return the frames of a whole reply."""
    begun = frame(HEADERS, END_HEADERS, stream, BEGIN) + frame(DATA, 0, stream, message(body))
    return begun + frame(HEADERS, END_HEADERS | END_STREAM, stream, WELL)


async def error_of(call: Awaitable[object]) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value


def say(channel: NativeChannel, request: bytes = b"hello") -> Awaitable[object]:
    return channel.unary_unary(ECHO + "Say")(request, timeout=20)


@pytest.fixture
def free() -> socket.socket:
    """A socket that is bound and does not listen: connections to it are refused."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


async def test_a_server_that_is_not_there_is_found_when_it_comes(free: socket.socket) -> None:
    target = f"127.0.0.1:{free.getsockname()[1]}"
    async with channel_to(target) as channel:
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        error = await error_of(say(channel))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert (error.details() or "").startswith(f"failed to connect to all addresses; last error: {target}: ")
        assert channel.get_state() is FAILED
        again = await error_of(say(channel))
        assert again.details() == error.details(), "nothing was tried in the pause"
        free.close()
        async with echoing(address=target):
            await comes(lambda: channel.get_state(try_to_connect=True) is READY)
            assert await say(channel) == b"hello"


async def test_pauses_grow_up_to_a_limit_and_begin_anew_with_a_connection(free: socket.socket) -> None:
    target = f"127.0.0.1:{free.getsockname()[1]}"
    async with channel_to(target) as channel:
        pauses = []
        for _ in range(9):
            pauses.append(channel._pause_s)
            channel._failed_until_s = 0.0
            await error_of(say(channel))
            assert 0.0 < channel._failed_until_s - channel.loop.time() <= 1.2 * pauses[-1]
        assert pauses[0] == 0.1
        assert pauses == sorted(pauses)
        assert channel._pause_s == 2.0
        free.close()
        async with echoing(address=target):
            channel._failed_until_s = 0.0
            assert await say(channel) == b"hello"
            assert channel._pause_s == 0.1


@pytest.mark.parametrize("target", ["no-such-host.invalid:1", "a..b:1"])
async def test_names_without_a_server_fail(target: str) -> None:
    async with channel_to(target) as channel:
        error = await error_of(say(channel))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert (error.details() or "").startswith(("DNS resolution failed", "failed to connect"))


@pytest.mark.parametrize("target", ["unix:/no/such.sock", "unix-abstract:no-such-socket"])
async def test_a_socket_without_a_server_is_named(target: str) -> None:
    async with channel_to(target) as channel:
        error = await error_of(say(channel))
    assert (error.details() or "").startswith(f"failed to connect to all addresses; last error: {target}: ")


async def test_nothing_is_sent_to_a_server_that_does_not_greet(monkeypatch: pytest.MonkeyPatch) -> None:
    greets, sent = asyncio.Event(), list[int]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            waiting = asyncio.ensure_future(next_frame(reader))
            await asyncio.wait([waiting], timeout=None if greets.is_set() else 0.2)
            if not waiting.done():
                greets.set()
                writer.write(greeting())
            kind, flags, stream, _ = await waiting
            sent.append(kind)
            if kind == HEADERS:
                assert greets.is_set()
            if kind == DATA and flags & END_STREAM:
                writer.write(reply(stream, b"at last"))

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        assert await say(channel) == b"at last"

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr(connecting, "CONNECT_S", 0.05)
    async with ByHand(silent) as server, channel_to(server.target) as channel:
        assert "no server has answered within 0.05 s" in str((await error_of(say(channel))).details())


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is no address of this machine")
async def test_an_address_without_an_answer_makes_room_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def named(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 0)) for last in (1, 1, 2)]

    monkeypatch.setattr(connecting, "CONNECT_S", 1.0)
    async with ByHand(silent) as server:
        port = server.target.rpartition(":")[2]
        async with echoing(address=f"127.0.0.2:{port}"), channel_to(f"many.example:{port}") as channel:
            monkeypatch.setattr(channel.loop, "getaddrinfo", named)
            assert await say(channel) == b"hello"
            assert server.connections == 1


async def test_a_call_that_waits_for_a_connection_may_be_late_or_cancelled() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with ByHand(silent) as server, channel_to(server.target) as channel:
        late = await error_of(channel.unary_unary(ECHO + "Say")(b"", timeout=0.05))
        assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        call = channel.stream_stream(ECHO + "Talk")()
        writing = asyncio.ensure_future(call.write(b"hello"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert not channel._waiting


async def test_a_server_that_leaves_keeps_its_calls_and_gets_no_more() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        number = server.connections
        _, _, stream, _ = await until(reader, HEADERS)
        if number == 1:
            writer.write(frame(GOAWAY, 0, 0, (2**31 - 1).to_bytes(4, "big") + bytes(4)))
            await left.wait()
            writer.write(frame(GOAWAY, 0, 0, stream.to_bytes(4, "big") + bytes(4)))
        writer.write(reply(stream, b"of %d" % number))
        await reader.read()

    left = asyncio.Event()
    async with ByHand(serve) as server, channel_to(server.target) as channel:
        first = asyncio.ensure_future(say(channel))
        await comes(lambda: bool(server.connections) and channel.get_state() is grpc.ChannelConnectivity.IDLE)
        assert await say(channel) == b"of 2"
        left.set()
        assert await first == b"of 1"
        await comes(lambda: len(channel._connections) == 1)
        assert channel.get_state() is READY


async def test_what_a_server_has_not_begun_is_tried_again_but_not_for_ever() -> None:
    refused = frame(RESET, 0, 1, (7).to_bytes(4, "big"))

    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        writer.write(frame(GOAWAY, 0, 0, bytes(8)) if server.connections == 1 else reply(stream, b"second"))
        await reader.read()

    async with ByHand(leaves) as server, channel_to(server.target) as channel:
        assert await say(channel) == b"second"
        assert server.connections == 2

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        while True:
            _, _, stream, _ = await until(reader, HEADERS)
            writer.write(refused if stream == 1 else frame(RESET, 0, stream, (7).to_bytes(4, "big")))

    async with ByHand(refuses) as server, channel_to(server.target) as channel:
        for call in (channel.unary_unary(ECHO + "Say")(b""), channel.unary_stream(ECHO + "Many")(b"").read()):
            error = await error_of(call)
            assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, NOT_BEGUN)
        stream = channel.stream_stream(ECHO + "Talk")()
        assert (await error_of(stream.read())).details() == NOT_BEGUN
        (connection,) = channel._connections
        assert connection.session.open(b"/s/c", None, None, b"", True) == 47, "eleven, eleven and one were made"


async def test_a_reader_goes_on_at_the_connection_that_begins_its_call() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        if server.connections == 1:
            writer.write(frame(GOAWAY, 0, 0, bytes(8)))
        else:
            writer.write(reply(stream, b"one"))
        await reader.read()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        call = channel.unary_stream(ECHO + "Many")(b"")
        assert [await call.read(), await call.read()] == [b"one", aio.EOF]


async def test_a_writer_waits_while_a_server_lets_nothing_in() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        came = 0
        while came < 65_535:
            came += len((await until(reader, DATA))[3])
        full.set()
        await may_go.wait()
        for number in (0, stream):
            writer.write(frame(WINDOW_UPDATE, 0, number, (100_000).to_bytes(4, "big")))
        while came < 100_005:
            came += len((await until(reader, DATA))[3])
        writer.write(reply(stream, b"all of it"))
        await reader.read()

    full, may_go = asyncio.Event(), asyncio.Event()
    async with ByHand(serve) as server, channel_to(server.target) as channel:
        call = channel.stream_stream(ECHO + "Talk")()
        writing = asyncio.ensure_future(call.write(bytes(100_000)))
        await full.wait()
        assert not writing.done()
        (connection,) = channel._connections
        assert connection.session.unsent_bytes == 100_005 - 65_535
        may_go.set()
        await writing
        assert connection.session.unsent_bytes == 0
        assert await call.read() == b"all of it"


async def test_a_server_that_takes_no_calls_counts_as_none() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting() + frame(GOAWAY, 0, 0, bytes(8)))
        await reader.read()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        error = await error_of(say(channel))
        assert "the server takes no calls" in str(error.details())
        assert (channel.get_state(), server.connections) == (FAILED, 1)


async def test_a_connection_that_is_lost_ends_its_calls_behind_what_has_come() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        two = message(b"one") + message(b"two") + message(b"cut")[:6]
        writer.write(frame(HEADERS, END_HEADERS, stream, BEGIN) + frame(DATA, 0, stream, two))
        await writer.drain()
        await begun.wait()

    begun = asyncio.Event()
    async with ByHand(serve) as server, channel_to(server.target) as channel:
        call = channel.unary_stream(ECHO + "Many")(b"")
        assert await call.read() == b"one"
        other = asyncio.ensure_future(say(channel))
        await asyncio.sleep(0)
        begun.set()
        assert (await error_of(other)).code() is grpc.StatusCode.UNAVAILABLE
        assert await call.read() == b"two"
        assert (await error_of(call.read())).code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "meaning"), [(2, "INTERNAL"), (8, "CANCELLED"), (11, "RESOURCE_EXHAUSTED"), (12, "PERMISSION_DENIED")]
)
async def test_resets_have_the_codes_of_grpc(code: int, meaning: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        writer.write(frame(RESET, 0, stream, code.to_bytes(4, "big")))
        await reader.read()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        assert (await error_of(say(channel))).code() is getattr(grpc.StatusCode, meaning)


async def test_what_is_no_grpc_is_told_by_its_status() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        page = block((":status", "503"), ("content-type", "text/html"))
        writer.write(frame(HEADERS, END_HEADERS, stream, page) + frame(DATA, END_STREAM, stream, b"<html>"))
        await reader.read()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        error = await error_of(say(channel))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "503" in str(error.details())


async def test_what_is_no_http_2_is_no_server() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 5)
        await writer.drain()

    async with ByHand(serve) as server, channel_to(server.target) as channel:
        error = await error_of(say(channel))
        assert (error.details() or "").startswith("failed to connect")


async def test_a_server_that_is_silent_is_asked_and_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        _, _, stream, _ = await until(reader, HEADERS)
        for _ in range(3):
            _, _, _, payload = await until(reader, PING)
            pings.append(payload)
            writer.write(frame(PING, ACK, 0, payload))
        if server.connections == 1:
            writer.write(reply(stream, b"still there"))
        await reader.read()

    pings: list[bytes] = []
    async with ByHand(serve) as server, channel_to(server.target, keepalive_s=0.05) as channel:
        assert await say(channel) == b"still there"
        assert len(pings) == 3
        (connection,) = channel._connections
        connection.transport.abort()
        await comes(lambda: channel.get_state() is grpc.ChannelConnectivity.IDLE)
        error = await error_of(say(channel))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNAVAILABLE, "the server gave no sign of life")


async def test_no_connection_without_calls_is_asked() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting())
        while True:
            kind, flags, stream, _ = await next_frame(reader)
            assert kind != PING
            if kind == DATA and flags & END_STREAM:
                writer.write(reply(stream, b"well"))

    async with ByHand(serve) as server, channel_to(server.target, keepalive_s=0.01) as channel:
        assert await say(channel) == b"well"
        await asyncio.sleep(0.1)
        assert await say(channel) == b"well"
        assert server.connections == 1
