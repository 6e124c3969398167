"""A pipelined connection: any number of messages under way, replies in the order of the requests.

send(b"get a get b", 2)  ->  |------------>  server
send(b"get c", 1)        ->  |------------>
[future of 2, future of 1]   <------------|  parser takes replies apart
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, cast

from pequod_bench.systems.system import PeerError

#: What a parser gives while a reply is incomplete.
NOTHING_YET: Final = object()


class Parser(Protocol):
    """Takes a byte stream apart into replies."""

    def feed(self, data: bytes) -> None:
        """Take what has come."""

    def gets(self) -> object:
        """Return the next whole reply, an exception object if it reports one, or ``NOTHING_YET``."""


class Pipe(asyncio.Protocol):
    """A connection that never waits for a reply before it sends.

    Invariants:
        1. ``_waiting`` holds, oldest first, how many replies each message lacks, and who waits for them.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._waiting: deque[tuple[int, asyncio.Future[list[object]]]] = deque()
        self._replies: list[object] = []
        self._transport: asyncio.Transport | None = None
        self._lost: PeerError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        parser, replies = self._parser, self._replies
        parser.feed(data)
        gets = parser.gets
        while (reply := gets()) is not NOTHING_YET:
            replies.append(reply)
            if isinstance(reply, Exception):
                self._fail(PeerError(f"the server refused a command: {reply}"))
                return
            count, future = self._waiting[0]
            if len(replies) == count:
                self._waiting.popleft()
                if not future.done():
                    future.set_result(replies)
                self._replies = replies = []

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(PeerError(f"the connection ended: {exc or 'the server closed it'}"))

    def _fail(self, error: PeerError) -> None:
        self._lost = error
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
        if self._transport is not None:
            self._transport.close()

    def send(self, request: bytes, reply_count: int) -> asyncio.Future[list[object]]:
        """Send commands that will be answered by ``reply_count`` replies; the future gives these.

        Raises:
            PeerError: From the future: a command was refused, or the connection ended.
        """
        future: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        if self._lost is not None or self._transport is None:
            future.set_exception(self._lost or PeerError("the connection is not made yet"))
        elif reply_count == 0:
            future.set_result([])
        else:
            self._waiting.append((reply_count, future))
            self._transport.write(request)
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@asynccontextmanager
async def connected(port: int, parser: Callable[[], Parser]) -> AsyncIterator[Pipe]:
    """Connect to a server on the loopback."""
    loop = asyncio.get_running_loop()
    _, pipe = await loop.create_connection(lambda: Pipe(parser()), "127.0.0.1", port)
    try:
        yield pipe
    finally:
        pipe.close()
