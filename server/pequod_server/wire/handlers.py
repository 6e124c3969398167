"""gRPC's handlers as interceptors and services use them: their method and its kind, and how a call is refused."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import grpc
from grpc import aio

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = aio.ServicerContext[Any, Any]
#: Returns the handler of a call, as the interceptors behind this one have it; None if no service has the method.
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"
#: Checks a request before its method runs, and may refuse it.
Check = Callable[[Any, Context], Awaitable[None]]

_METHODS_MAX: Final = 256
#: The beginning of the names of our service's methods.
SERVICE_PATH: Final = "/pequod.v1.Pequod/"
#: That of the calls between servers.
PEER_PATH: Final = "/pequod.v1.PequodPeer/"
#: Calls that count, whose requests are read when there is memory for them.
COUNTED_PATHS: Final = (SERVICE_PATH, PEER_PATH)


def method_of(handler: Handler) -> tuple[Any, Callable[..., Handler]]:
    """Return the method of a handler, and the function that makes a handler of the same kind."""
    if handler.request_streaming:
        if handler.response_streaming:
            return handler.stream_stream, grpc.stream_stream_rpc_method_handler
        return handler.stream_unary, grpc.stream_unary_rpc_method_handler
    if handler.response_streaming:
        return handler.unary_stream, grpc.unary_stream_rpc_method_handler
    return handler.unary_unary, grpc.unary_unary_rpc_method_handler


def checked_first(
    handler: Handler, check: Check, request_deserializer: Callable[[bytes], Any] | None = None
) -> Handler:
    """Return a handler of the same kind whose requests are checked before its method runs.

    Args:
        request_deserializer: Replaces the handler's own.
    """
    behaviour, make = method_of(handler)

    async def checked_reply(request: object, context: Context) -> object:
        await check(request, context)
        return await behaviour(request, context)

    async def checked_replies(request: object, context: Context) -> AsyncIterator[Any]:
        await check(request, context)
        async for reply in behaviour(request, context):
            yield reply
            del reply

    checked = checked_replies if inspect.isasyncgenfunction(behaviour) else checked_reply
    return make(checked, request_deserializer or handler.request_deserializer, handler.response_serializer)


class Wrapped:
    """The handlers that an interceptor puts around those that it finds: each is made once.

    Invariants:
        1. ``_by_method`` has at most ``_METHODS_MAX`` methods: refused calls may name any.
    """

    __slots__ = ("_by_method", "_wrap")

    def __init__(self, wrap: Callable[[str, Handler], Handler]) -> None:
        self._wrap = wrap
        #: By method: the original handler, and the one around it.
        self._by_method: dict[str, tuple[Handler, Handler]] = {}

    def around(self, method: str, handler: Handler) -> Handler:
        """Return the handler around the one of a method."""
        found, wrapped = self._by_method.get(method, (None, handler))
        if found is not handler:
            wrapped = self._wrap(method, handler)
            if len(self._by_method) >= _METHODS_MAX:
                self._by_method.clear()
            self._by_method[method] = handler, wrapped
        return wrapped


class Registry(Protocol):
    """Takes the handlers of services, as a server does."""

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler], /) -> None:
        """Add handlers, which are found by the names of methods."""


class Unregistered:
    """A server as generated code adds services to it, which does not register their methods.

    gRPC finds a registered method without a look at its name. But its asyncio server waits with a task for each of
    them, and looks at all these tasks again at each call: a third of the CPU of a Get, with some thirty methods.
    """

    __slots__ = ("_server",)

    def __init__(self, server: Registry) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add handlers, which are found by the names of methods."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, _service: str, _handlers: Mapping[str, Handler]) -> None:
        """Leave it at the handlers that are found by name."""


def refusing(status: grpc.Status) -> Handler:
    """Return a handler that refuses a call of any kind without reading its request."""

    async def refuse_call(_requests: object, context: Context) -> None:
        await end_with(context, status)

    # Fits every kind of call: nothing is read, and only the status is sent.
    return grpc.stream_stream_rpc_method_handler(refuse_call)


def when_ended(then: Callable[[object], object]) -> None:
    """Have a function called when the present call has ended, and its client has what was written.

    A callback of the context would be a ring of context, call and callback, which only the cyclic collector finds.
    """
    # gRPC runs each call in one task.
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(then)


async def written(context: Context, message: Any) -> None:
    """Write a message of a stream of replies.

    Raises:
        CancelledError: The call has ended: its client has left. gRPC may fail to write before it cancels the task.
    """
    try:
        await context.write(message)
    except aio.InternalError:
        raise asyncio.CancelledError from None


class CallEnded(Exception):  # noqa: N818 - it is how a call ends, and no error of its own
    """A call that ends with a status; `endings.py` tells gRPC."""

    def __init__(self, status: grpc.Status) -> None:
        super().__init__(status.details)
        self.status = status


def end_call(status: grpc.Status) -> NoReturn:
    """End a call with a status that has no PequodError; those are raised instead."""
    raise CallEnded(status)


async def end_with(context: Context, status: grpc.Status) -> None:
    """Send a status; afterwards the handler must return.

    gRPC raises the error of the abort again by itself once the handler has returned, and keeps it: without the frames,
    which lead to the context and so to gRPC's call.
    """
    try:
        await context.abort(status.code, status.details, status.trailing_metadata)
    except aio.AbortError as error:
        error.__traceback__ = None
    except aio.InternalError:
        pass  # Its client is gone.
