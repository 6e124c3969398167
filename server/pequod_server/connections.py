"""How many connections there may be: calls on those beyond are refused, with the name of the setting.

    call -> Connections -> its peer has a place, or gets one           -> the service
                           all places are taken by others that live    -> RESOURCE_EXHAUSTED

gRPC tells nobody when a connection comes or goes. Its channelz knows those that are there; it is asked when all places
are taken. gRPC itself closes connections only so far beyond the limit that those who come too many may hear why.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from grpc import aio
from grpc_channelz.v1 import channelz_pb2
from grpc_channelz.v1.channelz import ChannelzServicer

from pequod.engine import LimitExceededError
from pequod_server.handlers import Context, Handler, method_of, refuse

#: How many connections beyond the limit gRPC lets stand.
SLACK: Final = 100
_SERVICE: Final = "/pequod.v1.Pequod/"
#: Channelz is asked no more often than this: it takes 10 µs or so for each connection.
_ASK_S: Final = 1.0


class Connections(aio.ServerInterceptor):
    """Admits the calls of so many connections.

    Invariants:
        1. ``_admitted`` holds at most ``connections_max`` peers; some may have gone.
    """

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._admitted: set[str] = set()
        self._asked_s = -_ASK_S
        #: By method: the handler that was found, and the one that looks at the connection first.
        self._limited: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Have the connection of a call looked at before the call runs."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None or not method.startswith(_SERVICE):
            return handler
        found, limited = self._limited.get(method, (None, handler))
        if found is not handler:
            limited = self._limit(handler)
            self._limited[method] = handler, limited
        return limited

    def _limit(self, handler: Handler) -> Handler:
        behaviour, make = method_of(handler)
        limit = self._limited_generator if inspect.isasyncgenfunction(behaviour) else self._limited_coroutine
        return make(limit(behaviour), handler.request_deserializer, handler.response_serializer)

    def _limited_coroutine(
        self, behaviour: Callable[[Any, Context], Awaitable[Any]]
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def limited(request: object, context: Context) -> object:
            if not self._admits(context.peer()):
                await refuse(context, self._error())
            return await behaviour(request, context)

        return limited

    def _limited_generator(
        self, behaviour: Callable[[Any, Context], AsyncIterator[Any]]
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def limited(request: object, context: Context) -> AsyncIterator[Any]:
            if not self._admits(context.peer()):
                await refuse(context, self._error())
            async for reply in behaviour(request, context):
                yield reply

        return limited

    def _admits(self, peer: str) -> bool:
        if peer in self._admitted:
            return True
        if len(self._admitted) >= self._connections_max:
            now_s = time.monotonic()
            if now_s - self._asked_s < _ASK_S:
                return False
            self._asked_s = now_s
            self._admitted &= _living()
            if len(self._admitted) >= self._connections_max:
                return False
        self._admitted.add(peer)
        return True

    def _error(self) -> LimitExceededError:
        return LimitExceededError("connections_max", self._connections_max + 1, self._connections_max)


def _living() -> set[str]:
    """Return the peers of all connections of this process's servers."""
    living: set[str] = set()
    for server in ChannelzServicer.GetServers(channelz_pb2.GetServersRequest(), None).server:
        start, is_end = 0, False
        while not is_end:
            request = channelz_pb2.GetServerSocketsRequest(server_id=server.ref.server_id, start_socket_id=start)
            page = ChannelzServicer.GetServerSockets(request, None)
            living.update(socket.name.partition(" ")[2] for socket in page.socket_ref)
            is_end = page.end or not page.socket_ref
            start = page.socket_ref[-1].socket_id + 1 if page.socket_ref else 0
    return living
