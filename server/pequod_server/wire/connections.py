"""The limit on the number of connections: calls on further ones are refused, with the name of the setting.

    call -> Connections -> its peer has a place, or gets one           -> the service
                           all places are taken by others that live    -> RESOURCE_EXHAUSTED

gRPC does not report that a connection comes or goes. Its channelz lists the present ones; it is asked when all places
are taken. The native transport is asked instead where that runs. Either closes connections only well above the limit,
so that clients above it can get the refusal.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Final

import grpc
from grpc import aio
from grpc_channelz.v1 import channelz_pb2
from grpc_channelz.v1.channelz import ChannelzServicer

from pequod.engine import LimitExceededError
from pequod_server.wire.handlers import COUNTED_PATHS, Context, Handler, Wrapped, checked_first

#: The number of connections above the limit that gRPC keeps open.
SLACK: Final = 100
#: Channelz is asked no more often than this: it takes 10 µs or so for each connection.
_ASK_S: Final = 1.0


class Connections(aio.ServerInterceptor):
    """Admits the calls of a limited number of connections.

    Args:
        living: Returns the peers of all present connections.

    Invariants:
        1. ``_admitted`` holds at most ``connections_max`` peers; some may be gone.
    """

    def __init__(self, connections_max: int, living: Callable[[], AbstractSet[str]]) -> None:
        self._living = living
        self._connections_max = connections_max
        self._admitted: set[str] = set()
        self._asked_s = -_ASK_S
        self._limited = Wrapped(lambda _method, handler: checked_first(handler, self._check))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Check the connection of a call before the call runs."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None or not method.startswith(COUNTED_PATHS):
            return handler
        return self._limited.around(method, handler)

    async def _check(self, _request: object, context: Context) -> None:
        if not self._admits(context.peer()):
            raise LimitExceededError("connections_max", self._connections_max + 1, self._connections_max)

    def _admits(self, peer: str) -> bool:
        if peer in self._admitted:
            return True
        if len(self._admitted) >= self._connections_max:
            now_s = time.monotonic()
            if now_s - self._asked_s < _ASK_S:
                return False
            self._asked_s = now_s
            self._admitted &= self._living()
            if len(self._admitted) >= self._connections_max:
                return False
        self._admitted.add(peer)
        return True


def living_of_grpc() -> set[str]:
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
