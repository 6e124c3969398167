"""The server of this transport, with the interface of `grpc.aio.Server`."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
from grpc import aio

from pequod.errors import PequodError
from pequod.native.http2 import WINDOW_BYTES
from pequod_server.transport.budget import Budget
from pequod_server.transport.call_turns import CallTurns
from pequod_server.transport.chain import chained
from pequod_server.transport.connection import WireConnection
from pequod_server.transport.counts import CallCounts
from pequod_server.transport.exchange import EARLY_S, Exchange
from pequod_server.transport.hot_calls import HotCalls
from pequod_server.transport.keeping import Keeping
from pequod_server.transport.listener import Certificates, WireListener

#: One read of a socket; the bound of what a connection does in a turn of the event loop.
_READ_BYTES: Final = 64 << 10
#: How often `stop` looks whether the last calls have ended.
_LOOK_S: Final = 0.01


class Limits(NamedTuple):
    """The bounds of what clients send and hold."""

    #: A longer message is refused by its length, unread.
    message_bytes_max: int
    #: The bytes that all connections may hold together: of requests that wait, replies that wait, and headers.
    held_bytes_max: int
    #: Connections; further ones are closed.
    connections_max: int
    #: Streams of one connection.
    streams_max: int
    #: See `Keeping`.
    keepalive_s: float
    keepalive_timeout_s: float
    #: How much of a request a client may send before the call asks for it.
    unread_bytes_max: int = WINDOW_BYTES


class WireServer(aio.Server):
    """A server in the running event loop.

    Args:
        interceptors: The first of them is called first.
        status_of: Returns what clients see of an error.
        is_shared: Whether other processes of this user may listen at the same ports.
    """

    def __init__(  # the base class would make a server of gRPC's
        self,
        interceptors: Sequence[aio.ServerInterceptor],
        limits: Limits,
        status_of: Callable[[PequodError], grpc.Status],
        *,
        is_shared: bool = False,
    ) -> None:
        self._limits = limits
        self._is_shared = is_shared
        self.status_of = status_of
        self._handlers: list[grpc.GenericRpcHandler] = []
        self.find = chained(interceptors, self._handlers)
        self.loop: asyncio.AbstractEventLoop
        self.turns: CallTurns
        #: Where all connections read to: what one has read is taken before the next one reads.
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self.budget = Budget(limits.held_bytes_max)
        self.counts = CallCounts()
        #: Answers calls without a handler; None: none does.
        self.hot: HotCalls | None = None
        #: The present connections, the oldest first.
        self.connections: dict[WireConnection, None] = {}
        self._count = 0
        self._listener = WireListener(self._make)
        self._keeping = Keeping(limits.keepalive_s, limits.keepalive_timeout_s, self.connections)
        self._context = contextvars.Context()

    @property
    def message_bytes_max(self) -> int:
        """The longest message."""
        return self._limits.message_bytes_max

    @property
    def streams_max(self) -> int:
        """How many streams one connection may have."""
        return self._limits.streams_max

    @property
    def unread_bytes_max(self) -> int:
        """How much of a request a client may send before the call asks for it."""
        return self._limits.unread_bytes_max

    def peers(self) -> set[str]:
        """Return the addresses of the present clients."""
        return {connection.peer for connection in self.connections}

    def begin(self, exchange: Exchange) -> asyncio.Task[None]:
        """Run a call in a task of its own, which knows nothing of others."""
        return self.loop.create_task(exchange.run(), context=self._context.copy())

    def _make(self) -> WireConnection | None:
        if len(self.connections) + self._listener.shaking_count >= self._limits.connections_max:
            return None
        self._count += 1
        connection = WireConnection(self)
        connection.number = self._count
        return connection

    # The interface of `grpc.aio.Server`.

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        """Add handlers, which are found by the names of methods."""
        self._handlers += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Leave it at the handlers that are found by name."""

    def add_insecure_port(self, address: str) -> int:
        """Listen on an address in plain text, and return the port.

        Raises:
            OSError: That cannot be done.
        """
        return self._listener.add(address, None, is_shared=self._is_shared)

    def add_tls_port(self, address: str, certificates: Certificates) -> int:
        """Listen on an address with TLS, and return the port.

        Raises:
            OSError: That cannot be done.
        """
        return self._listener.add(address, certificates, is_shared=self._is_shared)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Refuse: gRPC's credentials show nothing of what is in them; see `add_tls_port`."""
        raise NotImplementedError

    async def start(self) -> None:
        """Take connections and calls."""
        self.loop = asyncio.get_running_loop()
        self.turns = CallTurns(self.loop)
        self._context = contextvars.copy_context()
        self._listener.start(self.loop)
        self._keeping.start(self.loop)

    async def stop(self, grace: float | None) -> None:
        """Take no more connections; let calls end within ``grace`` seconds, and cut off the others."""
        self._listener.close()
        self._keeping.stop()
        for connection in tuple(self.connections):
            connection.say_last(is_notice=True)
        if grace and self.connections:
            await self._until(lambda: not any(one.session.stream_count for one in self.connections), grace)
        tasks = []
        for connection in tuple(self.connections):
            tasks += connection.cut_off()
        if tasks:
            await asyncio.wait(tasks, timeout=grace or _LOOK_S)
            # Statuses of streams whose clients have not sent everything come a little later.
            await asyncio.sleep(EARLY_S + _LOOK_S)
        for connection in tuple(self.connections):
            connection.say_last(is_notice=False)
            connection.transport.close()
        if self.connections:
            # The transports write what they have, and tell their protocols in a next turn.
            await self._until(lambda: not self.connections, grace or _LOOK_S)
        for connection in tuple(self.connections):
            # Its client does not take the last bytes.
            connection.abort()
        await asyncio.sleep(0)

    async def _until(self, is_so: Callable[[], bool], wait_s: float) -> None:
        end_s = self.loop.time() + wait_s
        await asyncio.sleep(0)
        while not is_so() and self.loop.time() < end_s:  # noqa: ASYNC110 - only at the end
            await asyncio.sleep(_LOOK_S)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - gRPC's
        """Refuse: nothing waits this way."""
        raise NotImplementedError

    def __del__(self) -> None:
        """Do nothing: there is no server of gRPC's to be shut down."""
