"""What calls have in common: their beginning, their deadline, their end, with the interface of `grpc.aio.Call`.

made -> waits for a connection -> has a stream -> over
          | deadline, cancel        | end, deadline, cancel, the connection is lost
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from pequod.native.http2 import Fields
from pequod.native.http2.client import CANCEL, REFUSED, End, NativeClientSession, Taken
from pequod.wire.ends import Status, overlong, status_of
from pequod.wire.inflating import InflateError, OverlongError, inflated

_LATE: Final = Status(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", [])
_CANCELLED: Final = Status(StatusCode.CANCELLED, "Locally cancelled by application!", [])
#: How often a call is begun again that the server has not begun. A server that takes few streams at a time may refuse
#: one that comes before it has counted the end of another.
_REFUSALS_MAX: Final = 10


class Bearer(Protocol):
    """The connection that bears a call."""

    session: NativeClientSession

    def flush(self) -> None:
        """Send what there is."""

    def flush_soon(self) -> None:
        """Send what there is, after this turn of the event loop."""

    def drop(self, stream: int) -> None:
        """Forget a call."""

    def doubt(self) -> None:
        """See whether the server is alive: a call was late."""


class Caller(Protocol):
    """The channel of a call."""

    loop: asyncio.AbstractEventLoop
    message_bytes_max: int

    def begin(self, call: WireCall) -> None:
        """Have a call begin, as soon as there is a connection."""

    def withdraw(self, call: WireCall) -> None:
        """Forget a call that waits for a connection."""


class Method(NamedTuple):
    """A method, and how its messages become bytes and the other way round."""

    path: bytes
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None


class WireCall(ABC):
    """One call.

    Args:
        message: The only message of the request; None: it is a stream.
        timeout_s: How long it may take; None: for ever.

    Invariants:
        1. ``_status`` is set once; from then on it has no stream and no timer.
    """

    __slots__ = (
        "_bearer",
        "_callbacks",
        "_caller",
        "_due_s",
        "_metadata",
        "_method",
        "_refusals",
        "_request",
        "_status",
        "_stream",
        "_timer",
    )

    #: Whether the reply is one message, which comes with the end.
    is_unary = False

    def __init__(
        self, caller: Caller, method: Method, request: bytes | None, timeout_s: float | None, metadata: Fields | None
    ) -> None:
        self._caller = caller
        self._method = method
        self._request = request
        self._metadata = metadata
        self._bearer: Bearer | None = None
        self._stream = 0
        self._status: Status | None = None
        self._refusals = 0
        self._callbacks: list[Callable[[Any], None]] | None = None
        self._due_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        if timeout_s is not None:
            self._due_s = caller.loop.time() + timeout_s
            self._timer = caller.loop.call_at(self._due_s, self._expire)

    # What the channel and the connection ask of it.

    def open(self, bearer: Bearer, timeout: Callable[[float], bytes]) -> int:
        """Begin on a connection, and return the stream; 0: it takes no more."""
        left = None if self._due_s is None else timeout(self._due_s - self._caller.loop.time())
        stream = bearer.session.open(self._method.path, left, self._metadata, self._request, self.is_unary)
        if stream:
            self._bearer, self._stream = bearer, stream
            self._begun()
        return stream

    def done(self) -> bool:
        """Return whether it is over."""
        return self._status is not None

    def fail(self, status: Status) -> None:
        """End with a status that is not the server's."""
        if self._status is None:
            self._finish(status)

    def ended(self, end: End) -> None:
        """Take the end that the server has made; the stream is gone."""
        self._bearer, self._stream = None, 0
        if end.code == REFUSED and self._request is not None and self._refusals < _REFUSALS_MAX:
            # The server has not begun it, so that another try does no harm.
            self._refusals += 1
            self._caller.begin(self)
            return
        status = status_of(end)
        self._take_rest(end.rest)
        if self._status is None:
            self._finish(status)

    def lose(self, status: Status) -> None:
        """End since the connection is lost; messages that came before are taken."""
        self._finish(status)

    def finished(self, _message: bytes) -> None:
        """Take the only message, and the end of a call that went well."""
        raise AssertionError("it is told to calls with one reply")

    def message(self, _taken: Taken) -> None:
        """Take a message that was waited for."""
        raise AssertionError("it is told to calls with a stream of replies, or is too long")

    def emptied(self) -> None:
        """Note that all that was sent has gone."""
        raise AssertionError("it is told to calls with a stream of requests")

    @abstractmethod
    def _begun(self) -> None:
        """Note that there is a stream."""

    @abstractmethod
    def _take_rest(self, rest: list[Taken]) -> None:
        """Take messages that came before the end and were not taken."""

    @abstractmethod
    def _wake(self) -> None:
        """Have those that wait look again: the call is over."""

    def _finish(self, status: Status) -> None:
        self._status = status
        self._bearer, self._stream = None, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)

    def _leave(self, status: Status) -> None:
        """End it from this side."""
        if self._bearer is not None:
            self._bearer.session.reset(self._stream, CANCEL)
            self._bearer.drop(self._stream)
            self._bearer.flush_soon()
        else:
            self._caller.withdraw(self)
        self._finish(status)

    def _refuse(self, size: int) -> None:
        self._leave(overlong(size, self._caller.message_bytes_max))

    def _expire(self) -> None:
        self._timer = None
        self.doubt()
        self._leave(_LATE)

    # What callers ask of it, as `grpc.aio.Call` has it.

    def cancel(self) -> bool:
        """End the call; return whether it was under way."""
        if self._status is not None:
            return False
        self._leave(_CANCELLED)
        return True

    def doubt(self) -> None:
        """See whether the server is alive, since it is late; otherwise the connection is given up."""
        if self._bearer is not None:
            self._bearer.doubt()

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self._status is not None and self._status.code is StatusCode.CANCELLED

    def time_remaining(self) -> float | None:
        """Return how long it may still take."""
        return None if self._due_s is None else max(0.0, self._due_s - self._caller.loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a function when the call is over."""
        if self._status is not None:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    async def code(self) -> StatusCode:
        """Return the code, once the call is over."""
        return (await self._end()).code

    async def details(self) -> str:
        """Return the text of the status, once the call is over."""
        return (await self._end()).details

    async def trailing_metadata(self) -> Metadata:
        """Return what came with the status, once the call is over."""
        return Metadata(*(await self._end()).trailing)

    async def _end(self) -> Status:
        if self._status is None:
            over: asyncio.Future[None] = self._caller.loop.create_future()
            self.add_done_callback(lambda _: None if over.done() else over.set_result(None))
            await over
        assert self._status is not None
        return self._status

    def error(self) -> AioRpcError:
        """Return how the call has ended, well or not."""
        status = self._status
        assert status is not None, "it is over"
        return AioRpcError(status.code, Metadata(), Metadata(*status.trailing), status.details)

    def _raise_unless_ok(self) -> None:
        """Raise the error of a call that is over.

        Raises:
            AioRpcError: It has failed.
            asyncio.CancelledError: It was cancelled.
        """
        assert self._status is not None
        if self._status.code is StatusCode.OK:
            return
        if self._status is _CANCELLED:
            raise asyncio.CancelledError
        raise self.error()

    async def _reply_of(self, taken: Taken) -> Any:
        """Return the message that came, as callers know it."""
        if isinstance(taken, tuple):
            data, encoding = taken
            try:
                taken = await inflated(data, encoding.decode("latin-1"), self._caller.message_bytes_max)
            except InflateError as error:
                self._status = Status(StatusCode.INTERNAL, str(error), [])
                self._raise_unless_ok()
            except OverlongError:
                self._status = overlong(len(data), self._caller.message_bytes_max)
                self._raise_unless_ok()
        assert isinstance(taken, bytes)
        return taken if self._method.deserialize is None else self._method.deserialize(taken)


def serialized(method: Method, request: Any) -> bytes:
    """Return a message as bytes."""
    data: bytes = request if method.serialize is None else method.serialize(request)
    return data
