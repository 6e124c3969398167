"""The interceptor over a real gRPC server: methods of every style, and every way in which a call may end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest
from grpc import StatusCode, aio
from pequod_server.ops.observe import Call, CallObserver, Closer

#: Methods of messages that are bytes have no type of their own.
Channel = Any


class Methods(grpc.GenericRpcHandler):
    """Methods of all styles that grpc.aio knows; messages are bytes."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        make: dict[str, Callable[..., Any]] = {
            "answer": grpc.unary_unary_rpc_method_handler,
            "abort": grpc.unary_unary_rpc_method_handler,
            "set_code": grpc.unary_unary_rpc_method_handler,
            "fail": grpc.unary_unary_rpc_method_handler,
            "hang": grpc.unary_unary_rpc_method_handler,
            "plain": grpc.unary_unary_rpc_method_handler,
            "generate": grpc.unary_stream_rpc_method_handler,
            "write": grpc.unary_stream_rpc_method_handler,
            "join": grpc.stream_unary_rpc_method_handler,
            "echo": grpc.stream_stream_rpc_method_handler,
            "echo_generated": grpc.stream_stream_rpc_method_handler,
        }
        name = details.method.removeprefix("/a.B/")
        return make[name](getattr(self, name)) if name in make else None

    async def answer(self, request: bytes, _context: Any) -> bytes:
        return request

    async def abort(self, _request: bytes, context: Any) -> None:
        await context.abort(StatusCode.NOT_FOUND, "not here")

    async def set_code(self, request: bytes, context: Any) -> bytes:
        context.set_code(StatusCode.DATA_LOSS)
        return request

    async def fail(self, _request: bytes, _context: Any) -> bytes:
        raise ValueError

    async def hang(self, _request: bytes, _context: Any) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    def plain(self, request: bytes, _context: Any) -> bytes:
        return request

    async def generate(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield request
            await asyncio.sleep(0)

    async def write(self, request: bytes, context: Any) -> None:
        await context.write(request)
        await context.write(request)

    async def join(self, requests: AsyncIterator[bytes], _context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def echo(self, _requests: object, context: Any) -> None:
        while (request := await context.read()) is not aio.EOF:
            await context.write(request)

    async def echo_generated(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request


class Ledger:
    """A sink that keeps everything it is told."""

    def __init__(self) -> None:
        self.open: list[Call] = []
        self.closed: asyncio.Queue[tuple[Call, StatusCode, float]] = asyncio.Queue()

    def opened(self, call: Call) -> Closer:
        self.open.append(call)

        def closed(code: StatusCode, duration_s: float) -> None:
            self.open.remove(call)
            self.closed.put_nowait((call, code, duration_s))

        return closed

    async def next(self) -> tuple[str, StatusCode]:
        call, code, duration_s = await asyncio.wait_for(self.closed.get(), 10)
        assert duration_s >= 0
        return call.method.removeprefix("a.B/"), code


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def channel(ledger: Ledger) -> AsyncIterator[Any]:
    server = aio.server(interceptors=[CallObserver([ledger])])
    server.add_generic_rpc_handlers((Methods(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)
    assert ledger.open == [] and ledger.closed.empty(), "each call is opened and closed once, and looked at by its test"


async def _unary(channel: Channel, name: str, **options: Any) -> Any:
    return await channel.unary_unary(f"/a.B/{name}")(b"x", **options)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("abort", StatusCode.NOT_FOUND),
        ("set_code", StatusCode.DATA_LOSS),
        ("fail", StatusCode.UNKNOWN),
        ("unheard_of", StatusCode.UNIMPLEMENTED),
    ],
)
async def test_the_code_of_a_failure_is_the_one_that_the_client_gets(
    channel: Channel, ledger: Ledger, name: str, seen: StatusCode
) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await _unary(channel, name)
    assert caught.value.code() is seen
    assert await ledger.next() == ("unknown" if name == "unheard_of" else name, seen)


async def test_methods_keep_their_style(channel: Channel, ledger: Ledger) -> None:
    assert await _unary(channel, "answer") == b"x"
    assert await ledger.next() == ("answer", StatusCode.OK)
    assert [reply async for reply in channel.unary_stream("/a.B/write")(b"x")] == [b"x", b"x"]
    assert await ledger.next() == ("write", StatusCode.OK)
    assert await channel.stream_unary("/a.B/join")(iter([b"a", b"b"])) == b"ab"
    assert await ledger.next() == ("join", StatusCode.OK)
    for name in ("echo", "echo_generated"):
        stream = channel.stream_stream(f"/a.B/{name}")()
        for message in (b"1", b"2"):
            await stream.write(message)
            assert await stream.read() == message
        await stream.done_writing()
        assert await stream.code() is StatusCode.OK
        assert await ledger.next() == (name, StatusCode.OK)


async def test_methods_that_are_no_coroutines_pass_unseen(channel: Channel, ledger: Ledger) -> None:
    assert await _unary(channel, "plain") == b"x"
    assert ledger.closed.empty()


async def test_a_client_that_cancels_is_told_from_one_that_is_late(channel: Channel, ledger: Ledger) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await _unary(channel, "hang", timeout=1)
    assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
    assert await ledger.next() == ("hang", StatusCode.DEADLINE_EXCEEDED)
    stream = channel.unary_stream("/a.B/generate")(b"x")
    assert await stream.read() == b"x"
    assert len(ledger.open) == 1
    stream.cancel()
    assert await ledger.next() == ("generate", StatusCode.CANCELLED)


async def test_a_stream_of_a_client_that_goes_is_closed(channel: Channel, ledger: Ledger) -> None:
    stream = channel.stream_stream("/a.B/echo")()
    await stream.write(b"x")
    assert await stream.read() == b"x"
    assert len(ledger.open) == 1
    stream.cancel()
    # gRPC tells a method that reads either of the end of the requests or of the cancellation, as it comes.
    name, code = await ledger.next()
    assert name == "echo" and code in (StatusCode.OK, StatusCode.CANCELLED)


@pytest.mark.parametrize(
    ("metadata", "is_taken"),
    [((("x-request-id", "of-the-client"),), True), ((("x-request-id", "x" * 129),), False), ((), False)],
)
async def test_a_request_goes_by_the_name_of_the_client_if_it_gives_a_short_one(
    channel: Channel, ledger: Ledger, metadata: Sequence[tuple[str, str]], is_taken: bool
) -> None:
    await _unary(channel, "answer", metadata=metadata)
    await _unary(channel, "answer", metadata=metadata)
    names = [(await ledger.closed.get())[0].request_id for _ in range(2)]
    assert names == ["of-the-client"] * 2 if is_taken else len(set(names)) == 2
    assert all(0 < len(name) <= 128 for name in names)
