"""Calls that come by another way than gRPC: the same handlers behind the same interceptors, without a wire.

message -> observer, endings, limits, guard -> handler -> replies
-> status  -> RefusedCallError
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from pequod_server.transport.chain import CallDetails, chained
from pequod_server.transport.ending import EndingContext
from pequod_server.wire.handlers import method_of

#: Takes a reply.
Take: TypeAlias = "Callable[[Any], Awaitable[None]]"
_DETAILS_KEY: Final = "grpc-status-details-bin"


class Visitor(NamedTuple):
    """The client of a call."""

    #: Its address.
    peer: str
    #: Its token and the names of its calls, as gRPC's metadata.
    metadata: tuple[tuple[str, str], ...]


class RefusedCallError(Exception):
    """A call that has ended with a status.

    Attributes:
        code: gRPC's code.
        reason: The class of the error; empty: it has none.
        facts: What the error tells beside its text.
    """

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", facts: Mapping[str, str] = {}) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.facts = dict(facts)


class Handlers:
    """A server as services are added to it, which only keeps their handlers."""

    def __init__(self) -> None:
        self.all: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Keep handlers, which are found by the names of methods."""
        self.all += handlers


class LocalCalls:
    """The calls of one server.

    Args:
        interceptors: The first of them is called first; they see messages, not bytes.
        handlers: Of several that know a method, the first is taken.
    """

    def __init__(
        self, interceptors: Sequence[aio.ServerInterceptor], handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        self._find = chained(interceptors, handlers)

    async def replies(self, method: str, request: Any, visitor: Visitor, take: Take) -> None:
        """Make a call, and give its replies to ``take``, one after another.

        Raises:
            RefusedCallError: The call has ended with a status.
        """
        context = _Context(visitor, take)
        # Interceptors note things of the call with its task.
        await asyncio.get_running_loop().create_task(self._run(method, request, context), context=contextvars.Context())
        context.refuse()

    async def _run(self, method: str, request: Any, context: _Context) -> None:
        handler = await self._find(CallDetails(method, context.invocation_metadata()))
        if handler is None:
            context.end(grpc.StatusCode.UNIMPLEMENTED, "there is no such call")
            return
        behaviour, _ = method_of(handler)
        try:
            if inspect.isasyncgenfunction(behaviour):
                async with aclosing(behaviour(request, context)) as replies:
                    async for reply in replies:
                        await context.write(reply)
            elif (reply := await behaviour(request, context)) is not None:
                await context.write(reply)
        except aio.AbortError:
            pass  # The context has the status.


class _Context(EndingContext):
    """A call, as its handler sees it."""

    __slots__ = ("_take", "_visitor")

    def __init__(self, visitor: Visitor, take: Take) -> None:
        super().__init__()
        self._visitor = visitor
        self._take = take

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """Note the status."""
        self._code, self._details, self._is_ended = code, details, True

    def refuse(self) -> None:
        """Raise the status that the call has ended with, if it is not OK."""
        if self._code is None or self._code is grpc.StatusCode.OK:
            return
        info = error_details_pb2.ErrorInfo()
        for key, value in self._trailing:
            if key == _DETAILS_KEY and isinstance(value, bytes):
                for detail in status_pb2.Status.FromString(value).details:
                    detail.Unpack(info)
        raise RefusedCallError(self._code, self._details, info.reason, info.metadata)

    async def read(self) -> Any:
        """Return that nothing follows: the handler has its request."""
        return aio.EOF

    async def write(self, message: Any) -> None:
        """Give a reply on."""
        await self._take(message)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> Any:
        """End the call with a status, and raise."""
        self._trailing = trailing_metadata or self._trailing
        self.end(code, details)
        raise aio.AbortError("Locally aborted.")

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Leave out what the other side has no use for."""

    def invocation_metadata(self) -> Any:
        """Return the metadata of the request."""
        return self._visitor.metadata

    def peer(self) -> str:
        """Return the address of the client."""
        return self._visitor.peer

    def auth_context(self) -> Mapping[str, Any]:
        """Return nothing: the client shows no certificate."""
        return {}

    def time_remaining(self) -> Any:
        """Return nothing: the call has no deadline."""
        return None
