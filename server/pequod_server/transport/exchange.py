"""One call: what a handler sees of it, with the interface of `grpc.aio.ServicerContext`, and the task that runs it.

headers -> Exchange -> task: interceptors -> handler -> read, write, abort -> the native session
                         ^                                   |
   closed, readable, drained, late <- WireConnection <- events <-+
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, Protocol

import grpc
from grpc import aio

from pequod.native.http2 import Fields, NativeSession
from pequod.wire.inflating import InflateError, OverlongError, inflated
from pequod.wire.metadata import Metadata, fields_of
from pequod_server.memory.admission import SMALL_BYTES
from pequod_server.transport.chain import CallDetails
from pequod_server.transport.ending import EndingContext
from pequod_server.transport.headers import Opening, trailers_of

log = logging.getLogger("pequod.server")

#: A writer waits while this many bytes of its stream have not gone.
_UNSENT_BYTES_MAX: Final = 64 << 10
#: So much later than the server's clock the one of a client may say that a call is late.
_CLOCKS_S: Final = 0.1
#: A later deadline is none: no timer of an event loop goes so far.
_TIMEOUT_MAX_S: Final = 1e7
#: A failure that comes before its client has sent everything is sent so much later: gRPC's asyncio client says INTERNAL
#: if a stream is over before it has heard of its own last write.
EARLY_S: Final = 0.02
#: HTTP/2's code of a stream that is not wanted any more.
_CANCEL: Final = 8


class Carrier(Protocol):
    """The connection of a call, as the call sees it."""

    session: NativeSession
    peer: str
    message_bytes_max: int

    @property
    def is_crowded(self) -> bool:
        """Whether more replies wait than may."""

    def flush_soon(self) -> None:
        """Send what there is."""

    def flush_reply(self) -> None:
        """Send what there is, at once if no other call may add to it."""

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return what is known of the client."""

    async def find(self, details: CallDetails) -> Any:
        """Return the handler of a call; None: there is no such method."""


class Exchange(EndingContext):
    """One call.

    Invariants:
        1. Once ``_is_ended``, nothing more is sent on the stream; once ``_is_gone``, the client does not want it.
    """

    __slots__ = (
        "_callbacks", "_carrier", "_deadline_s", "_deserialize", "_drained", "_encoding", "_is_gone", "_readable",
        "_serialize", "_stream", "_timer", "call", "has_run", "task",
    )  # fmt: skip

    def __init__(self, carrier: Carrier, stream: int, opening: Opening, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._carrier = carrier
        self._stream = stream
        self.call = CallDetails(opening.method, opening.metadata)
        self._encoding = opening.encoding
        self._callbacks: list[Callable[[Any], None]] = []
        #: Futures that a handler waits for: a message is there; the client has let in what was sent. Two of its tasks
        #: may wait at a time.
        self._readable: asyncio.Future[object] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_gone = False
        self._deserialize: Any = None
        self._serialize: Any = None
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        if opening.timeout_s is not None:
            self._deadline_s = time.monotonic() + opening.timeout_s
            if opening.timeout_s < _TIMEOUT_MAX_S:
                self._timer = loop.call_later(opening.timeout_s, self._late)
        self.task: asyncio.Task[None] | None = None
        #: Whether its task has begun to run.
        self.has_run = False

    # What handlers call.

    async def read(self) -> Any:
        """Return the next message, or `aio.EOF`."""
        carrier, session = self._carrier, self._carrier.session
        while (found := session.take(self._stream)) is None:
            # The windows are given back that let the message in.
            carrier.flush_soon()
            self._readable = asyncio.get_running_loop().create_future()
            try:
                made = await self._readable
            finally:
                self._readable = None
            if made is not None:
                return made
        if found is False:
            return aio.EOF
        if session.has_output:
            carrier.flush_soon()
        if isinstance(found, tuple):
            message = await self._inflated(found[0])
        elif isinstance(found, bytes):
            message = found
        else:
            self._refuse(f"SERVER: Received message larger than max ({found} vs. {carrier.message_bytes_max})")
        return message if self._deserialize is None else self._deserialize(message)

    async def _inflated(self, message: bytes) -> bytes:
        try:
            return await inflated(message, self._encoding, self._carrier.message_bytes_max)
        except OverlongError:
            self._refuse("Decompressed message larger than max")
        except InflateError as error:
            self._end(grpc.StatusCode.INTERNAL, str(error), ())
            raise asyncio.CancelledError from None

    def _refuse(self, details: str) -> NoReturn:
        """End a call whose message is beyond what any setting lets in; its handler gets nothing of it."""
        self._end(grpc.StatusCode.RESOURCE_EXHAUSTED, details, ())
        raise asyncio.CancelledError

    def take_no_more(self) -> None:
        """Drop what has come and was not read, and what comes: nothing of it is run, by the core either."""
        self._carrier.session.ignore(self._stream)

    async def _gone(self) -> None:
        """Wait until what was sent has gone, or the stream is over."""
        if not self._carrier.session.when_drained(self._stream):
            return
        self._drained = asyncio.get_running_loop().create_future()
        try:
            await self._drained
        finally:
            self._drained = None

    def __aiter__(self) -> Exchange:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is aio.EOF:
            raise StopAsyncIteration
        return message

    async def write(self, message: Any) -> None:
        """Send a message; wait while the client does not take what was sent before."""
        data = message if self._serialize is None else self._serialize(message)
        carrier = self._carrier
        unsent_bytes = carrier.session.send(self._stream, data)
        if unsent_bytes < 0:
            raise aio.InternalError("the call is over") if self._is_gone else aio.UsageError("the call has ended")
        carrier.flush_soon()
        if unsent_bytes > _UNSENT_BYTES_MAX or carrier.is_crowded:
            await self._gone()

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Begin the response, with metadata."""
        if not self._carrier.session.begin(self._stream, fields_of(initial_metadata)):
            raise aio.UsageError("the response has begun")
        self._carrier.flush_soon()

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> Any:
        """End the call with a status, and raise."""
        if self._is_ended:
            raise aio.InternalError("the call is over") if self._is_gone else aio.UsageError("the call has ended")
        self._end(code, details or self._details, trailing_metadata or self._trailing)
        raise aio.AbortError("Locally aborted.")

    def invocation_metadata(self) -> Any:
        """Return the metadata of the request."""
        return self.call.invocation_metadata

    def peer(self) -> str:
        """Return the address of the client."""
        return self._carrier.peer

    def auth_context(self) -> Mapping[str, Any]:
        """Return what the client's certificate says."""
        return self._carrier.auth_context()

    def time_remaining(self) -> Any:
        """Return the seconds that the client still waits, None without a deadline."""
        return None if self._deadline_s is None else max(self._deadline_s - time.monotonic(), 0.0)

    def add_done_callback(self, callback: Any) -> None:
        """Have a function called when the client has the status, or is gone."""
        self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """Return whether the client was gone before the end."""
        return self._is_gone

    @property
    def is_ok(self) -> bool:
        """Whether the call has ended well."""
        return self._is_ended and not self._is_gone and self._code is grpc.StatusCode.OK

    # What its connection calls.

    @property
    def is_reading(self) -> bool:
        """Whether its handler waits for a message."""
        return self._readable is not None

    def readable(self, made: object = None) -> None:
        """Note that there is a message, or none will come; or say what has been made of the one that is waited for."""
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(made)

    def drained(self) -> None:
        """Note that what was sent has gone."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def closed(self) -> None:
        """Note that the stream is over: its client has everything, has cancelled, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_ended:
            self._is_ended = self._is_gone = True
            if self.task is not None:
                self.task.cancel()
        self.readable()
        self.drained()
        for callback in self._callbacks:
            callback(self)
        self._callbacks.clear()

    def refuse(self, status: grpc.Status, error: Exception) -> None:
        """End the call with a status before it is known what it asks; a handler that reads meets the error."""
        if self._is_ended:
            return
        if self.has_run and self.task is not None:
            self.take_no_more()
            self.task.cancel(error)
            return
        self._end(status.code, status.details, status.trailing_metadata or ())
        if self.task is not None:
            # A task that is cancelled before it runs ends nothing.
            self.task.cancel()

    def end_unknown(self, reason: str, *, is_too_long: bool) -> None:
        """End a call of which no more is known than that its headers are not right."""
        code = grpc.StatusCode.RESOURCE_EXHAUSTED if is_too_long else grpc.StatusCode.INTERNAL
        self._end(code, f"no call: {reason}", ())

    def _late(self) -> None:
        """End the call at its deadline, whatever the client has of the reply."""
        self._timer, carrier = None, self._carrier
        if self._is_ended or carrier.session.when_drained(self._stream):
            # A status would stand behind what waits; a reset before the client's own clock looks like a cancelled call.
            loop = asyncio.get_running_loop()
            loop.call_later(_CLOCKS_S, carrier.session.reset, self._stream, _CANCEL)
            loop.call_later(_CLOCKS_S, carrier.flush_soon)
        else:
            self._end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())
        self._is_ended = self._is_gone = True
        if self.task is not None:
            self.task.cancel()

    # From the beginning to the end.

    def _end(self, code: grpc.StatusCode, details: str, trailing: Metadata, last: bytes | None = None) -> int:
        """Send the status, behind a last message; return how many bytes wait."""
        if self._is_ended:
            return 0
        self._is_ended = True
        self._code, self._details, self._trailing = code, details, trailing
        is_plain = code is grpc.StatusCode.OK and not details and not trailing
        trailers = None if is_plain else trailers_of(code, details, trailing)
        if trailers is not None and not self._carrier.session.is_half_closed(self._stream):
            self.take_no_more()
            asyncio.get_running_loop().call_later(EARLY_S, self._finish, trailers, last)
            return 0
        return self._finish(trailers, last)

    def _finish(self, trailers: Fields | None, last: bytes | None) -> int:
        unsent_bytes = self._carrier.session.finish(self._stream, trailers, last)
        # One that is refused before it has a task is so while its connection reads.
        if self.task is None:
            self._carrier.flush_soon()
        else:
            self._carrier.flush_reply()
        return unsent_bytes

    async def run(self) -> None:
        """Run the call to its end."""
        self.has_run = True
        try:
            await self._run()
        except (aio.AbortError, aio.InternalError):
            pass  # The status is sent, or the client is gone.
        except asyncio.CancelledError:
            self._end(grpc.StatusCode.CANCELLED, "", ())
        except Exception as error:
            log.exception("a defect ended a call")
            self._end(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}", ())

    async def _run(self) -> None:
        handler = await self._carrier.find(self.call)
        if handler is None:
            self._end(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
            return
        self._deserialize, self._serialize = handler.request_deserializer, handler.response_serializer
        request: Any = self
        if handler.request_streaming:
            behaviour = handler.stream_stream if handler.response_streaming else handler.stream_unary
        else:
            behaviour = handler.unary_stream if handler.response_streaming else handler.unary_unary
            request = await self.read()
            if request is aio.EOF:
                self._end(grpc.StatusCode.INTERNAL, "the call has no request", ())
                return
        last: bytes | None = None
        if not handler.response_streaming:
            reply = await behaviour(request, self)
            if not self._is_ended:
                last = reply if self._serialize is None else self._serialize(reply)
        elif inspect.isasyncgenfunction(behaviour):
            async for reply in behaviour(request, self):
                await self.write(reply)
        else:
            await behaviour(request, self)
        if self._is_ended:
            return
        code = self._code or grpc.StatusCode.OK
        if self._end(code, self._details, self._trailing, last) > SMALL_BYTES:
            # The call is under way until the client has let in a reply that counts; a smaller one goes by itself.
            await self._gone()
