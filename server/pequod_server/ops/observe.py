"""One interceptor around all calls: it tells its sinks when a call is opened and how it ended.

    call ──► CallObserver ──► the servicer's method, with the context that it would have had
                 │ opened(call)
                 ├──► metrics.CallMetrics ┐
                 ├──► logs.CallLog        ├ each returns what is to be called with the code and the seconds
                 └──► traces.CallTraces   ┘

Methods keep their style. One that reads and writes through its context goes on doing so, and one that yields its
replies is still a generator; so a stream costs the observer two visits, however many messages go through it.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence, Sized
from contextlib import AbstractContextManager, aclosing
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

import grpc
from grpc import aio
from pequod_proto.pequod_pb2 import CommandError
from structlog.contextvars import bind_contextvars

from pequod_server.wire.handlers import SERVICE_PATH, Context, Continuation, Handler, Wrapped, method_of

log = logging.getLogger("pequod.server")

#: The header by which a client names its request, in lower case as gRPC wants it.
REQUEST_ID_KEY: Final = "x-request-id"
#: Longer ones are replaced: they stand in every line of the log.
REQUEST_ID_LENGTH_MAX: Final = 128
#: A call that is cancelled this near to its deadline has met it: the client's clock is not ours.
_DEADLINE_SLACK_S: Final = 0.01
#: How gRPC's own services and ours call a method that tells of changes until the client has enough.
_WATCHES: Final = ("/Watch", "/WatchRanges")

Metadata = Sequence[tuple[str, str | bytes]]
#: Called once, with the code of the call and the seconds that the server took for it.
Closer = Callable[[grpc.StatusCode, float], None]


class BatchWork(NamedTuple):
    """The work of a batch that the last piece of its reply does not show."""

    #: The contents of the pieces before it.
    row_count: int = 0
    errors: Sequence[CommandError] = ()
    #: Rows that reads had to compute meanwhile; where the batch waited, those of other calls are among them.
    rows_computed: int = 0


#: That of a batch whose reply is one message, and whose reads had nothing to compute.
ONE_PIECE: Final = BatchWork()


class BatchRequest(Protocol):
    """The fields of a batch's request that sinks read."""

    @property
    def kinds(self) -> bytes:
        """The kinds of its commands."""

    @property
    def arguments(self) -> Sequence[bytes]:
        """Its arguments; of a batch that no handler has seen, the first of them."""

    @property
    def trace_parent(self) -> bytes:
        """The span of its caller, as W3C's header `traceparent` names it; empty: none."""

    @property
    def trace_state(self) -> bytes:
        """The state of the span in the caller's tracing system: W3C's header `tracestate`."""


class BatchReply(Protocol):
    """The fields of a batch's reply that sinks read."""

    @property
    def keys(self) -> Sized:
        """As many as there are rows."""

    @property
    def errors(self) -> Sequence[CommandError]:
        """Why commands failed."""


#: Called after each batch of Execute, with the last piece of its reply, its other work, and the seconds that its
#: commands took; decoding and sending are not in them.
BatchSink = Callable[[BatchRequest, BatchReply, BatchWork, float], None]


class BatchTraces(Protocol):
    """Makes the spans of batches whose callers name a span."""

    def ran(self, request: BatchRequest, duration_s: float) -> None:
        """Make the span of a batch that has just ended."""

    def running(self, request: BatchRequest, age_s: float) -> AbstractContextManager[None]:
        """Make the span of a batch that runs meanwhile; what homes are asked for its sake is under it.

        Args:
            age_s: How long it has run already.
        """
        ...


class Call:
    """One call, as far as it is known when a sink looks."""

    __slots__ = ("client_s", "is_open_ended", "metadata", "method", "request", "request_id", "rows")

    def __init__(self, method: str, metadata: Metadata, request_id: str, *, is_open_ended: bool) -> None:
        #: `Get` for our own service, `grpc.health.v1.Health/Check` for others.
        self.method = method
        self.metadata = metadata
        #: The client's, or else one that is unique in this process.
        self.request_id = request_id
        #: Whether it takes as long as the client likes: it sends a stream, or it watches.
        self.is_open_ended = is_open_ended
        #: The one request, None if the client sends a stream.
        self.request: Any = None
        #: How long the client took to read replies; the time of the call is without it.
        self.client_s = 0.0
        #: Rows in the replies so far.
        self.rows = 0


class Sink(Protocol):
    """Wants to know of calls."""

    def opened(self, call: Call) -> Closer:
        """Take note of a call, and return what is to be called at its end."""
        ...


class CallObserver(aio.ServerInterceptor):
    """Tells sinks of every call of asynchronous methods; others pass unseen.

    Put it before all other interceptors, so that it sees what they refuse.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._observed = Wrapped(self._observe)
        self._own_ids = map(f"{secrets.token_hex(4)}-%d".__mod__, itertools.count(1))

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Wrap the method that a call goes to."""
        handler = await continuation(details)
        if handler is None:
            metadata: Metadata = details.invocation_metadata or ()
            # gRPC answers by itself. The name is the caller's invention and not worth a line in the metrics.
            call = Call("unknown", metadata, self.request_id(metadata), is_open_ended=False)
            for sink in self._sinks:
                sink.opened(call)(grpc.StatusCode.UNIMPLEMENTED, 0.0)
            return handler
        return self._observed.around(details.method, handler)

    def _observe(self, method: str, handler: Handler) -> Handler:
        """Return a handler whose calls are observed."""
        # Methods of our own service go by their last name, others by `service/method`.
        name = method.removeprefix(SERVICE_PATH).removeprefix("/")
        is_open_ended = handler.request_streaming or method.endswith(_WATCHES)

        def observation(context: Context) -> _Observation:
            metadata = tuple(context.invocation_metadata() or ())
            call = Call(name, metadata, self.request_id(metadata), is_open_ended=is_open_ended)
            return _Observation(self._sinks, call, context)

        return _wrapped(handler, observation)

    def request_id(self, metadata: Metadata) -> str:
        """Return the name of a request that its client gave it, or a new one."""
        for key, value in metadata:
            if key == REQUEST_ID_KEY and isinstance(value, str) and 0 < len(value) <= REQUEST_ID_LENGTH_MAX:
                return value
        return next(self._own_ids)


class _Observation:
    """From the opening of a call to its end, as a context manager."""

    __slots__ = ("_closers", "_context", "_sinks", "_started_s", "call")

    def __init__(self, sinks: tuple[Sink, ...], call: Call, context: Context) -> None:
        self._sinks = sinks
        self._context = context
        self.call = call

    def __enter__(self) -> Call:
        # Each call is a task of its own, so this ends with the call.
        bind_contextvars(request_id=self.call.request_id)
        self._started_s = time.perf_counter()
        self._closers = [sink.opened(self.call) for sink in self._sinks]
        return self.call

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        code = _code(kind, self._context)
        duration_s = time.perf_counter() - self._started_s - self.call.client_s
        for close in self._closers:
            close(code, duration_s)


def _code(kind: type[BaseException] | None, context: Context) -> grpc.StatusCode:
    """Return the code that a call ends with, from what its method raised."""
    if kind is not None and issubclass(kind, (asyncio.CancelledError, GeneratorExit)):
        remaining_s = context.time_remaining()
        is_late = remaining_s is not None and remaining_s < _DEADLINE_SLACK_S
        return grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED
    # None, whatever its type says, if neither the method nor gRPC has set one.
    code: grpc.StatusCode | None = context.code()
    return code or (grpc.StatusCode.OK if kind is None else grpc.StatusCode.UNKNOWN)


async def _end_by_defect(context: Context, call: Call) -> None:
    """End a call that has met a defect without its text, which gRPC would send: it may say anything."""
    text = f"a defect of the server; its log has it under the request {call.request_id}"
    await context.abort(grpc.StatusCode.UNKNOWN, text)


def _wrapped(handler: Handler, observe: Callable[[Context], _Observation]) -> Handler:
    """Return a handler of the same kind and style whose calls are observed."""
    behaviour, make = method_of(handler)
    if inspect.isasyncgenfunction(behaviour):

        async def generate(request: Any, context: Context) -> AsyncIterator[Any]:
            with observe(context) as call:
                if not handler.request_streaming:
                    call.request = request
                try:
                    async with aclosing(behaviour(request, context)) as replies:
                        async for reply in replies:
                            call.rows += _row_count(reply)
                            ready_s = time.perf_counter()
                            try:
                                yield reply
                            finally:
                                call.client_s += time.perf_counter() - ready_s
                                del reply
                except aio.AbortError:
                    raise
                except Exception:
                    log.exception("a defect ended a call")
                    await _end_by_defect(context, call)

        observed: Any = generate
    elif inspect.iscoroutinefunction(behaviour):

        async def answer(request: Any, context: Context) -> Any:
            with observe(context) as call:
                if not handler.request_streaming:
                    call.request = request
                try:
                    reply = await behaviour(request, context)
                except aio.AbortError:
                    raise
                except Exception:
                    log.exception("a defect ended a call")
                    await _end_by_defect(context, call)
                    raise
                call.rows = _row_count(reply)
                return reply

        observed = answer
    else:
        return handler
    return make(observed, handler.request_deserializer, handler.response_serializer)


def _row_count(reply: object) -> int:
    kind = type(reply)
    if kind not in _HAS_KEYS:
        descriptor = getattr(kind, "DESCRIPTOR", None)
        # A reply that is encoded already has an attribute of its own that says how many there are; a dict has a method.
        own = getattr(kind, "keys", None)
        is_attribute = own is not None and not callable(own)
        _HAS_KEYS[kind] = is_attribute if descriptor is None else "keys" in descriptor.fields_by_name
    return len(getattr(reply, "keys", ())) if _HAS_KEYS[kind] else 0


#: Whether replies of a class have rows: to look in a message for a field that it does not have takes 3 µs.
_HAS_KEYS: Final[dict[type, bool]] = {}
