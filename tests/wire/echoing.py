"""A server of gRPC's own with methods of all kinds, and one that answers frames by hand, for clients of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self

import grpc
from grpc import aio

from pequod.wire.channel import NativeChannel
from pequod.wire.places import place_of
from tests.server.frames import PREFACE, SETTINGS, frame

ECHO: Final = "/echo.Echo/"


class Echo:
    """The methods of the server, and what it has seen."""

    def __init__(self) -> None:
        #: Set when a call is cancelled, and by how many calls were begun.
        self.cancelled = asyncio.Event()
        #: Set when a call has no end from now on.
        self.hangs = asyncio.Event()
        self.begun = 0
        self.metadata: dict[str, Any] = {}

    async def say(self, request: bytes, context: aio.ServicerContext[Any, Any]) -> bytes:
        """Return the request; what it says may ask for an error, or for no end."""
        self.begun += 1
        self.metadata = dict(context.invocation_metadata() or ())
        self.metadata["time"] = context.time_remaining()
        if request == b"fail":
            context.set_trailing_metadata((("x-why-bin", b"\0\1"), ("x-word", "no")))
            await context.abort(grpc.StatusCode.NOT_FOUND, "100 % gone: käse")
        if request == b"hang":
            await self._hang()
        return request

    async def many(self, request: bytes, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        """Yield as many messages as the request says, and then fail, hang or end."""
        self.begun += 1
        count, size, last = request.split()
        for number in range(int(count)):
            yield b"%d" % number + bytes(int(size))
        if last == b"fail":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no more")
        if last == b"hang":
            await self._hang()

    async def talk(
        self, requests: AsyncIterator[bytes], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        """Yield each request; one may ask for an error, or for the end."""
        self.begun += 1
        async for request in requests:
            if request == b"fail":
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")
            if request == b"end":
                return
            yield request

    async def _hang(self) -> None:
        self.hangs.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@asynccontextmanager
async def echoing(
    credentials: grpc.ServerCredentials | None = None,
    address: str = "127.0.0.1:0",
    settings: Sequence[tuple[str, Any]] = (),
    compression: grpc.Compression | None = None,
) -> AsyncIterator[tuple[Echo, str, aio.Server]]:
    """Run the server, and yield its methods, its target and itself."""
    echo = Echo()
    server = aio.server(options=[("grpc.max_receive_message_length", -1), *settings], compression=compression)
    handlers: dict[str, Any] = {
        "Say": grpc.unary_unary_rpc_method_handler(echo.say),
        "Many": grpc.unary_stream_rpc_method_handler(echo.many),
        "Talk": grpc.stream_stream_rpc_method_handler(echo.talk),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", handlers),))
    add = server.add_insecure_port
    port = add(address) if credentials is None else server.add_secure_port(address, credentials)
    await server.start()
    try:
        yield echo, address if address.startswith("unix") else f"127.0.0.1:{port}", server
    finally:
        await server.stop(None)


@asynccontextmanager
async def channel_to(target: str, *arguments: Any, **options: Any) -> AsyncIterator[NativeChannel]:
    """Yield a channel, and close it."""
    place = place_of(target)
    assert place is not None
    async with NativeChannel(place, *arguments, **options) as channel:
        yield channel


class ByHand:
    """A server that sends what a test tells it, once for each connection.

    Args:
        serve: Gets the two ends of a connection whose client has sent its greeting.
    """

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        #: How many connections were made.
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await reader.readexactly(len(PREFACE))
                await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)


async def next_frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """Return kind, flags, stream and payload of the next frame."""
    head = await reader.readexactly(9)
    return head[3], head[4], int.from_bytes(head[5:9], "big"), await reader.readexactly(int.from_bytes(head[:3], "big"))


async def until(reader: asyncio.StreamReader, kind: int) -> tuple[int, int, int, bytes]:
    """Return the next frame of a kind."""
    while (found := await next_frame(reader))[0] != kind:
        pass
    return found


async def comes(check: Callable[[], bool]) -> None:
    """Wait until something holds."""
    for _ in range(3000):
        if check():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it does not come")


def greeting() -> bytes:
    """Return what a server says first."""
    return frame(SETTINGS, 0, 0)
