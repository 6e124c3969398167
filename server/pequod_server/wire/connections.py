"""The limits on connections, and on the calls of one that last: what is beyond is refused with the name of the setting.

    call -> Connections -> its peer has a place, or gets one           -> the service
                           all places are taken by others that live    -> RESOURCE_EXHAUSTED

gRPC does not report that a connection comes or goes. Its channelz lists the present ones; it is asked when all places
are taken. The native transport is asked instead where that runs. Either closes connections only well above the limit,
so that clients above it can get the refusal.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

import grpc
from grpc import aio
from grpc_channelz.v1 import channelz_pb2
from grpc_channelz.v1.channelz import ChannelzServicer

from pequod.engine import LimitExceededError
from pequod_server.wire.handlers import (
    COUNTED_PATHS,
    PEER_PATH,
    SERVICE_PATH,
    Context,
    Continuation,
    Handler,
    Wrapped,
    checked_first,
    when_ended,
)

#: The number of connections above the limit that gRPC keeps open.
SLACK: Final = 100
#: Calls whose replies are streams that end by themselves. Other streams last as long as their clients like.
_PASSING: Final = frozenset({SERVICE_PATH + "Scan", PEER_PATH + "Load"})
#: Channelz is asked no more often than this: it takes 10 µs or so for each connection.
_ASK_S: Final = 1.0


class Connections(aio.ServerInterceptor):
    """Admits the calls of a limited number of connections, and of each a limited number of calls that last.

    Args:
        living: Returns the peers of all present connections.

    Invariants:
        1. ``_admitted`` holds at most ``connections_max`` peers; some may be gone.
        2. ``_lasting`` holds the number of calls that last, by peer: from 1 to ``streams_max``.
    """

    def __init__(self, connections_max: int, streams_max: int, living: Callable[[], AbstractSet[str]]) -> None:
        self._living = living
        self._connections_max = connections_max
        self._streams_max = streams_max
        self._lasting: Counter[str] = Counter()
        self._admitted: set[str] = set()
        self._asked_s = -_ASK_S
        self._limited = Wrapped(self._checked)

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Check the connection of a call before the call runs."""
        method = details.method
        handler = await continuation(details)
        if handler is None or not method.startswith(COUNTED_PATHS):
            return handler
        return self._limited.around(method, handler)

    def _checked(self, method: str, handler: Handler) -> Handler:
        is_stream = handler.request_streaming or handler.response_streaming
        return checked_first(handler, self._check_lasting if is_stream and method not in _PASSING else self._check)

    async def _check_lasting(self, request: object, context: Context) -> None:
        await self._check(request, context)
        peer = context.peer()
        count = self._lasting[peer] + 1
        if count > self._streams_max:
            raise LimitExceededError("connection_streams_max", count, self._streams_max)
        self._lasting[peer] = count
        when_ended(lambda _: self._forget(peer))

    def _forget(self, peer: str) -> None:
        self._lasting[peer] -= 1
        if not self._lasting[peer]:
            del self._lasting[peer]

    async def _check(self, _request: object, context: Context) -> None:
        if not self.admits(context.peer()):
            raise LimitExceededError("connections_max", self._connections_max + 1, self._connections_max)

    def admits(self, peer: str) -> bool:
        """Return whether a connection has a place, which it may get now."""
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
