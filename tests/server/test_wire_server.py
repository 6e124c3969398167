"""The native transport by itself, with handlers of the test's own: what gRPC's server does, this one does."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_server.transport.call_turns import CallTurns
from pequod_server.transport.server import Limits, WireServer
from pequod_server.wire.errors import status_of

from pequod.native.http2 import why_absent
from tests.server.frames import DATA, END_HEADERS, END_STREAM, HEADERS, Stranger, fields_in, frame, heads, message

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
MESSAGE_MAX = 1 << 20
LIMITS = Limits(MESSAGE_MAX, 16 << 20, 100, 1000, 0, 0)
_told: ContextVar[str] = ContextVar("told", default="nobody")


class Handlers:
    """Answers of all kinds."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.ended = asyncio.Event()

    async def echo(self, request: bytes, context: Any) -> bytes:
        self.seen["metadata"] = dict(context.invocation_metadata())
        self.seen["who"] = context.auth_context(), context.peer()
        context.add_done_callback(lambda _: self.ended.set())
        return request

    async def greet(self, request: bytes, context: Any) -> bytes:
        await context.send_initial_metadata((("x-first", "1"),))
        context.set_trailing_metadata((("x-last-bin", b"\0\1"),))
        return request

    async def tell(self, request: bytes, _context: Any) -> bytes:
        before = _told.get()
        _told.set(request.decode())
        await asyncio.sleep(0)
        return before.encode()

    async def coded(self, request: bytes, context: Any) -> bytes:
        context.set_code(grpc.StatusCode.OUT_OF_RANGE)
        context.set_details("ä 100%\n")
        return request

    async def broken(self, _request: bytes, _context: Any) -> bytes:
        raise ValueError("x y")

    async def count(self, requests: Any, context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield b"%d" % len(request)
        self.ended.set()

    async def both(self, _requests: Any, context: Any) -> None:
        async def read() -> int:
            count = 0
            while await context.read() is not aio.EOF:
                count += 1
            return count

        reading = asyncio.create_task(read())
        for _ in range(10):
            await context.write(bytes(300_000))
        await context.write(b"%d" % await reading)

    async def flood(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        try:
            for number in range(10_000):
                self.seen["written"] = number
                yield bytes(10_000)
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(address: str = "127.0.0.1:0") -> AsyncIterator[tuple[str, Handlers, WireServer]]:
    server, handlers = WireServer((), LIMITS, status_of), Handlers()
    unary, both = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    kinds: dict[str, Callable[..., Any]] = {"count": both, "both": both, "flood": grpc.unary_stream_rpc_method_handler}
    names = ("echo", "greet", "tell", "coded", "broken", "count", "both", "flood")
    methods = {name: kinds.get(name, unary)(getattr(handlers, name)) for name in names}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield address if address.startswith("unix:") else f"127.0.0.1:{port}", handlers, server
    finally:
        await server.stop(0.2)
        assert server.budget.held_bytes == 0


async def test_metadata_of_both_kinds_arrive_and_leave() -> None:
    async with serving() as (target, handlers, _), aio.insecure_channel(target) as channel:
        echo: Any = channel.unary_unary("/s/echo")
        assert await echo(b"r", metadata=(("x-a", "b"), ("x-b-bin", b"\0\xff,"))) == b"r"
        metadata = handlers.seen["metadata"]
        assert (metadata["x-a"], metadata["x-b-bin"]) == ("b", b"\0\xff,")
        assert "user-agent" in metadata and "te" not in metadata
        async with asyncio.timeout(5):
            await handlers.ended.wait()
        greet: Any = channel.unary_unary("/s/greet")
        call = greet(b"r")
        assert dict(await call.initial_metadata())["x-first"] == "1"
        assert dict(await call.trailing_metadata())["x-last-bin"] == b"\0\1"


async def test_codes_texts_and_defects_are_as_with_grpc() -> None:
    async with serving() as (target, _, _), aio.insecure_channel(target) as channel:
        expected = {
            "coded": (grpc.StatusCode.OUT_OF_RANGE, "ä 100%\n"),
            "broken": (grpc.StatusCode.UNKNOWN, "Unexpected <class 'ValueError'>: x y"),
            "nothing": (grpc.StatusCode.UNIMPLEMENTED, "Method not found!"),
        }
        for name, end in expected.items():
            method: Any = channel.unary_unary(f"/s/{name}")
            with pytest.raises(aio.AioRpcError) as caught:
                await method(b"r")
            assert (caught.value.code(), caught.value.details()) == end


async def test_a_call_knows_nothing_of_another() -> None:
    async with serving() as (target, _, _), aio.insecure_channel(target) as channel:
        tell: Any = channel.unary_unary("/s/tell")
        names = [b"%d" % number for number in range(100)]
        assert set(await asyncio.gather(*map(tell, names))) == {b"nobody"}


async def test_what_is_compressed_is_no_longer_than_a_message_may_be() -> None:
    async with serving() as (target, _, _):
        for body, status, text in (
            (gzip.compress(bytes(MESSAGE_MAX)), "0", None),
            (gzip.compress(bytes(MESSAGE_MAX + 1)), "8", "Decompressed message larger than max"),
            (gzip.compress(bytes(64 << 20)), "8", "Decompressed message larger than max"),
            (b"no gzip", "13", None),
            (gzip.compress(b"cut")[:-1], "13", "a message of gzip is cut short"),
        ):
            stranger = Stranger(target)
            stranger.send(frame(HEADERS, END_HEADERS, 1, heads("/s/echo", ("grpc-encoding", "gzip"))))
            data = message(body, flag=1)
            for at in range(0, len(data), 16384):
                last = END_STREAM if at + 16384 >= len(data) else 0
                stranger.send(frame(DATA, last, 1, data[at : at + 16384]))
            fields = fields_in(await asyncio.to_thread(stranger.until_closed, 0.7))[1]
            stranger.close()
            # The reply to the first is longer than the window of this client.
            assert fields.get("grpc-status", "0") == status
            assert text is None or fields["grpc-message"] == text


async def test_a_writer_waits_for_its_client() -> None:
    async with serving() as (target, handlers, server), aio.insecure_channel(target) as channel:
        flood: Any = channel.unary_stream("/s/flood")
        call = flood(b"")
        await call.read()
        await asyncio.sleep(0.3)
        written = handlers.seen["written"]
        await asyncio.sleep(0.3)
        assert handlers.seen["written"] == written < 5000
        (connection,) = server.connections
        assert connection.session.unsent_bytes < 200_000
        call.cancel()
        async with asyncio.timeout(5):
            await handlers.ended.wait()


async def test_a_stream_is_read_and_answered_message_by_message() -> None:
    async with serving() as (target, _, _), aio.insecure_channel(target) as channel:
        call: Any = channel.stream_stream("/s/count")()
        for size in (0, 1, 70_000, 500_000, 3):
            await call.write(bytes(size))
            assert await call.read() == b"%d" % size
        await call.done_writing()
        assert await call.read() is aio.EOF


async def test_one_task_of_a_handler_may_read_while_another_writes() -> None:
    async with serving() as (target, _, _), aio.insecure_channel(target) as channel:
        call: Any = channel.stream_stream("/s/both")()
        # Nothing is read of the replies, so the writer waits; the reader must hear of each message all the same.
        for number in range(5):
            await call.write(b"%d" % number)
            await asyncio.sleep(0.02)
        await call.done_writing()
        async with asyncio.timeout(10):
            replies = [reply async for reply in call]
        assert replies == [bytes(300_000)] * 10 + [b"5"]


async def test_a_unix_socket_tells_who_calls(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/socket") as (target, handlers, _), aio.insecure_channel(target) as channel:
        echo: Any = channel.unary_unary("/s/echo")
        await echo(b"r")
        context, peer = handlers.seen["who"]
        assert peer == "unix:1"
        assert context["peer_uid"] == [b"%d" % os.getuid()]


async def test_an_address_in_use_is_refused_and_free_after_the_end() -> None:
    server = WireServer((), LIMITS, status_of)
    port = server.add_insecure_port("127.0.0.1:0")
    other = WireServer((), LIMITS, status_of)
    with pytest.raises(OSError, match="in use"):
        other.add_insecure_port(f"127.0.0.1:{port}")
    await server.stop(None)
    assert other.add_insecure_port(f"127.0.0.1:{port}") == port
    await other.stop(None)


async def test_calls_begin_a_few_at_a_time_and_in_turns() -> None:
    turns, begun = CallTurns(asyncio.get_running_loop()), list[str]()
    left = {"one": 100, "other": 3}

    def beginner(name: str) -> Callable[[], bool]:
        def begin() -> bool:
            begun.append(name)
            left[name] -= 1
            return left[name] > 0

        return begin

    turns.add(beginner("one"))
    turns.add(beginner("other"))
    assert begun == []
    await asyncio.sleep(0)
    assert len(begun) == 32
    assert begun[:7] == ["one", "other", "one", "other", "one", "other", "one"]
    async with asyncio.timeout(5):
        while any(left.values()):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
