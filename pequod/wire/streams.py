"""Calls with one reply, and calls with a stream of replies, as `grpc.aio` has them.

reply = await call                                 the call ends with it
await call.write(request); reply = await call.read()    `grpc.aio.EOF` after the last one
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Self

from grpc import StatusCode
from grpc.aio import EOF

from pequod.native.http2 import Fields
from pequod.native.http2.client import Taken
from pequod.wire.call import Caller, Method, WireCall, serialized
from pequod.wire.ends import OK, Status
from pequod.wire.inflating import InflateError, OverlongError, inflated_at_once

#: A writer waits while this many bytes of its stream have not gone.
_UNSENT_BYTES_MAX: Final = 64 << 10
_NOT_ONE: Final = Status(StatusCode.INTERNAL, "the server ended the call well, and its reply is not one message", [])


class UnaryCall(WireCall):
    """A call with one reply."""

    __slots__ = ("_taken", "_waiter")

    is_unary = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._taken: Taken | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        """Return the reply.

        Raises:
            AioRpcError: The call has failed.
        """
        if self._status is None:
            if self._waiter is None:
                self._waiter = self._caller.loop.create_future()
            try:
                yield from self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        self._raise_unless_ok()
        assert self._taken is not None
        if isinstance(self._taken, bytes):
            deserialize = self._method.deserialize
            return self._taken if deserialize is None else deserialize(self._taken)
        return (yield from self._reply_of(self._taken).__await__())

    def finished(self, message: bytes) -> None:
        """Take the only message, and the end of a call that went well."""
        self._taken = message
        self._finish(OK)

    def message(self, taken: Taken) -> None:
        """Take a message that is too long."""
        assert isinstance(taken, int)
        self._refuse(taken)

    def _finish(self, status: Status) -> None:
        if status.code is StatusCode.OK and self._taken is None:
            status = _NOT_ONE
        super()._finish(status)

    def _begun(self) -> None:
        return

    def _take_rest(self, rest: list[Taken]) -> None:
        if len(rest) == 1 and not isinstance(rest[0], int):
            (self._taken,) = rest

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class StreamCall(WireCall):
    """A call with a stream of replies; its request is one message, or a stream too.

    Invariants:
        1. ``_ready`` has messages that came and were not read; those that the session has are behind them.
    """

    __slots__ = ("_is_finished", "_is_wanted", "_ready", "_waiters")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ready: deque[Taken] = deque()
        #: Readers and writers, until something comes, the call begins, or the socket takes more.
        self._waiters: list[asyncio.Future[None]] = []
        #: Whether the session will tell of the next message.
        self._is_wanted = False
        self._is_finished = False

    async def read(self) -> Any:
        """Return the next message, `grpc.aio.EOF` after the last one.

        Raises:
            AioRpcError: The call has failed.
        """
        while (taken := self._next()) is None:
            if self._status is not None:
                self._raise_unless_ok()
                return EOF
            await self._wait()
        if isinstance(taken, int):
            self._refuse(taken)
            self._raise_unless_ok()
        if isinstance(taken, bytes):
            deserialize = self._method.deserialize
            return taken if deserialize is None else deserialize(taken)
        return await self._reply_of(taken)

    async def write(self, request: Any) -> None:
        """Send a message; wait while many bytes have not gone.

        Raises:
            AioRpcError: The call has failed.
            asyncio.InvalidStateError: The call is over, or its request was ended.
        """
        if self._status is not None or self._is_finished:
            raise asyncio.InvalidStateError("the call is over, or its request was ended")
        data = serialized(self._method, request)
        await self._until_begun()
        if self._bearer is None:
            self._raise_unless_ok()
            return
        waiting = self._bearer.session.send(self._stream, data)
        self._bearer.flush_soon()
        if waiting > _UNSENT_BYTES_MAX:
            await self._until_emptied()

    async def done_writing(self) -> None:
        """End the request."""
        if self._status is not None or self._is_finished:
            return
        self._is_finished = True
        await self._until_begun()
        if self._bearer is not None:
            self._bearer.session.finish(self._stream)
            self._bearer.flush_soon()

    def __aiter__(self) -> Self:
        """Yield the messages."""
        return self

    async def __anext__(self) -> Any:
        """Return the next message."""
        message = await self.read()
        if message is EOF:
            raise StopAsyncIteration
        return message

    def message(self, taken: Taken) -> None:
        """Take a message that was waited for."""
        self._is_wanted = False
        self._ready.append(taken)
        self._wake()

    def emptied(self) -> None:
        """Note that all that was sent has gone."""
        self._wake()

    def lose(self, status: Status) -> None:
        """End since the connection is lost; messages that came before are taken."""
        if self._bearer is not None:
            while isinstance(taken := self._bearer.session.take(self._stream), bytes | tuple):
                self._ready.append(taken)
        super().lose(status)

    def _next(self) -> Taken | None:
        """Return the next message, None if there is none; then `message` brings it, if the call goes on."""
        if self._ready:
            return self._ready.popleft()
        if self._bearer is None or self._is_wanted:
            return None
        taken = self._bearer.session.take(self._stream)
        if taken is None or isinstance(taken, bool):
            self._is_wanted = taken is None
            # The room that the session gives to the server is told at once.
            if self._bearer.session.has_output:
                self._bearer.flush_soon()
            return None
        return taken

    async def _until_begun(self) -> None:
        while self._bearer is None and self._status is None:
            await self._wait()

    async def _until_emptied(self) -> None:
        while self._bearer is not None and self._bearer.session.when_emptied(self._stream):
            await self._wait()
        if self._status is not None:
            self._raise_unless_ok()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._caller.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _begun(self) -> None:
        # Readers and writers that waited at another connection, which did not begin the call, wait at this one.
        self._is_wanted = False
        if self._waiters:
            self._wake()

    def _take_rest(self, rest: list[Taken]) -> None:
        self._ready += rest

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class PushedCall(WireCall):
    """A call with streams of bytes on both sides, for a caller with functions in the place of awaits.

    Args:
        hear: Gets each message as it comes.
        go_on: Called when the call has begun, and when much that waited has gone.
    """

    __slots__ = ("_go_on", "_hear", "_is_full")

    def __init__(
        self,
        caller: Caller,
        method: Method,
        metadata: Fields | None,
        hear: Callable[[bytes], None],
        go_on: Callable[[], None],
    ) -> None:
        super().__init__(caller, method, None, None, metadata)
        self._hear = hear
        self._go_on = go_on
        self._is_full = False

    @property
    def is_ready(self) -> bool:
        """Whether it takes messages now."""
        return self._bearer is not None and not self._is_full

    def send(self, message: bytes) -> None:
        """Send a message; it goes out after this turn of the event loop, or with `flush`.

        Requires:
            ``is_ready``
        """
        assert self._bearer is not None
        self._is_full = self._bearer.session.send(self._stream, message) > _UNSENT_BYTES_MAX
        if self._is_full:
            self._bearer.session.when_emptied(self._stream)
        self._bearer.flush_soon()

    def flush(self) -> None:
        """Send what there is at once."""
        if self._bearer is not None:
            self._bearer.flush()

    def message(self, taken: Taken) -> None:
        """Hand over a message that was waited for, and those that are there behind it."""
        self._hand_over(taken)
        self._hand_over_rest()

    def emptied(self) -> None:
        """Note that all that was sent has gone."""
        self._is_full = False
        self._go_on()

    def lose(self, status: Status) -> None:
        """End since the connection is lost; messages that came before are taken."""
        self._hand_over_rest()
        if self._status is None:
            super().lose(status)

    def _hand_over_rest(self) -> None:
        while self._bearer is not None:
            taken = self._bearer.session.take(self._stream)
            if taken is None or isinstance(taken, bool):
                return
            self._hand_over(taken)

    def _hand_over(self, taken: Taken) -> None:
        if isinstance(taken, int):
            self._refuse(taken)
            return
        if isinstance(taken, tuple):
            try:
                taken = inflated_at_once(taken[0], taken[1].decode("latin-1"), self._caller.message_bytes_max)
            except (InflateError, OverlongError) as error:
                self._leave(Status(StatusCode.INTERNAL, f"a compressed message cannot be read: {error}", []))
                return
        self._hear(taken)

    def _begun(self) -> None:
        self._hand_over_rest()
        self._caller.loop.call_soon(self._go_on)

    def _take_rest(self, rest: list[Taken]) -> None:
        for taken in rest:
            if self._status is None:
                self._hand_over(taken)

    def _wake(self) -> None:
        """Do nothing: its callbacks are told."""
