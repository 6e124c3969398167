"""A channel to one server, with the interface of `grpc.aio.Channel`, as far as clients of Pequod use it.

idle -- a call --> connecting -> ready -- the server leaves, or is lost --> idle
                       | fails
                       v
                   failed: calls fail at once, until the pause is over and the next one connects again
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeVar

from grpc import ChannelConnectivity, StatusCode
from grpc.aio import UsageError

from pequod.native.http2 import Fields
from pequod.wire.call import Method, WireCall, serialized
from pequod.wire.connecting import make_connection
from pequod.wire.connection import ClientConnection
from pequod.wire.ends import Status
from pequod.wire.metadata import fields_of
from pequod.wire.places import Place
from pequod.wire.streams import PushedCall, StreamCall, UnaryCall

#: The first pause after a failure, how it grows, and the longest one; each with a fifth more or less, by chance.
_PAUSE_S: Final = 0.1
_PAUSE_GROWTH: Final = 1.6
_PAUSE_MAX_S: Final = 2.0
_PAUSE_CHANCE: Final = 0.2
#: The longest message that HTTP/2's form of gRPC can have.
MESSAGE_BYTES_MAX: Final = (1 << 32) - 1
_CLOSED: Final = Status(StatusCode.CANCELLED, "Channel closed.", [])
Pairs = Sequence[tuple[str, str | bytes]]
C = TypeVar("C", bound=WireCall)


class NativeChannel:
    """A channel whose connections are the native core's, for the event loop that runs when it is made.

    Args:
        tls: None: plain text.
        keepalive_s: See `ConnectionOwner`.

    Invariants:
        1. Calls are in ``_waiting`` only while it connects.
        2. ``_connection`` has greeted, and takes calls as far as is known.
    """

    def __init__(
        self,
        place: Place,
        tls: ssl.SSLContext | None = None,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        keepalive_s: float = 0.0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.message_bytes_max = message_bytes_max
        self.keepalive_s = keepalive_s
        self._place = place
        self._tls = tls
        self._connection: ClientConnection | None = None
        #: All that are open: some may be leaving.
        self._connections: set[ClientConnection] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: dict[WireCall, None] = {}
        #: How calls fail, and until when nothing is tried.
        self._failure: Status | None = None
        self._failed_until_s = 0.0
        self._pause_s = _PAUSE_S
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    # What stubs and callers ask of it.

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Any = None,
    ) -> Callable[..., UnaryCall]:
        """Return what makes a call with one reply."""
        made = Method(method.encode(), request_serializer, response_deserializer)

        def call(request: Any, *, timeout: float | None = None, metadata: Pairs = ()) -> UnaryCall:
            return self._started(UnaryCall(self, made, serialized(made, request), timeout, _fields(metadata)))

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Any = None,
    ) -> Callable[..., StreamCall]:
        """Return what makes a call with a stream of replies."""
        made = Method(method.encode(), request_serializer, response_deserializer)

        def call(request: Any, *, timeout: float | None = None, metadata: Pairs = ()) -> StreamCall:
            return self._started(StreamCall(self, made, serialized(made, request), timeout, _fields(metadata)))

        return call

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: Any = None,
    ) -> Callable[..., StreamCall]:
        """Return what makes a call with streams on both sides."""
        made = Method(method.encode(), request_serializer, response_deserializer)

        def call(*, timeout: float | None = None, metadata: Pairs = ()) -> StreamCall:
            return self._started(StreamCall(self, made, None, timeout, _fields(metadata)))

        return call

    def pushed_stream(self, method: str) -> Callable[..., PushedCall]:
        """Return what makes a call with streams of bytes on both sides, which are handed over as they come.

        It takes what gets each message, and what is called once the call takes more.
        """
        made = Method(method.encode(), None, None)

        def call(hear: Callable[[bytes], None], go_on: Callable[[], None], *, metadata: Pairs = ()) -> PushedCall:
            return self._started(PushedCall(self, made, _fields(metadata), hear, go_on))

        return call

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Refuse: Pequod has no such method, but generated stubs of others ask for all of theirs."""

        def call(*_: Any, **__: Any) -> Any:
            raise UsageError(f"this channel has no calls with a stream of requests and one reply, as {method} is")

        return call

    def get_state(self, try_to_connect: bool = False) -> ChannelConnectivity:  # noqa: FBT001, FBT002 - gRPC's
        """Return the state of the channel."""
        if self._is_closed:
            return ChannelConnectivity.SHUTDOWN
        if self._connection is not None:
            return ChannelConnectivity.READY
        if self._connecting is None and self._has_failed():
            return ChannelConnectivity.TRANSIENT_FAILURE
        if try_to_connect:
            self._connect()
        return ChannelConnectivity.IDLE if self._connecting is None else ChannelConnectivity.CONNECTING

    async def close(self, grace: float | None = None) -> None:
        """Cancel the calls, after a time, and close the connections. Closing twice is no error."""
        self._is_closed = True
        if grace:
            await asyncio.sleep(grace)
        if (connecting := self._connecting) is not None:
            connecting.cancel()
            await asyncio.wait([connecting])
        for call in (*self._waiting, *(call for one in self._connections for call in one.calls.values())):
            call.cancel()
        await asyncio.gather(*(connection.end() for connection in self._connections))

    # What calls and connections ask of it.

    def begin(self, call: WireCall) -> None:
        """Have a call begin, as soon as there is a connection."""
        if self._connection is not None and self._connection.begin(call):
            return
        if self._is_closed:
            call.fail(_CLOSED)
        elif self._connecting is None and self._has_failed():
            assert self._failure is not None
            call.fail(self._failure)
        else:
            self._waiting[call] = None
            self._connect()

    def withdraw(self, call: WireCall) -> None:
        """Forget a call that waits for a connection."""
        self._waiting.pop(call, None)

    def leave(self, connection: ClientConnection) -> None:
        """Begin no more calls on a connection: the server takes none."""
        if self._connection is connection:
            self._connection = None

    def lost(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        self.leave(connection)
        self._connections.discard(connection)

    # Inside.

    def _started(self, call: C) -> C:
        if self._is_closed:
            raise UsageError("Channel is closed.")
        self.begin(call)
        return call

    def _has_failed(self) -> bool:
        return self._failure is not None and self.loop.time() < self._failed_until_s

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = self.loop.create_task(self._make_connection())

    async def _make_connection(self) -> None:
        failure: Status | None = _CLOSED
        try:
            connection = await make_connection(self, self._place, self._tls, self.message_bytes_max)
            self._connection = connection
            self._connections.add(connection)
            failure = None
        except socket.gaierror as error:
            failure = self._failed(str(error), "DNS resolution failed")
        except (OSError, ValueError) as error:
            failure = self._failed(str(error))
        finally:
            self._connecting = None
            self._settle(failure)

    def _failed(self, why: str, what: str = "failed to connect to all addresses; last error") -> Status:
        """Return how calls fail from now on: gRPC's texts, by which callers know that nothing was done."""
        chance = random.uniform(1 - _PAUSE_CHANCE, 1 + _PAUSE_CHANCE)  # noqa: S311 - no secret
        self._failed_until_s = self.loop.time() + self._pause_s * chance
        self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _PAUSE_MAX_S)
        return Status(StatusCode.UNAVAILABLE, f"{what}: {self._place.target}: {why}", [])

    def _settle(self, failure: Status | None) -> None:
        """Begin the calls that waited, or have them fail."""
        self._failure = failure
        waiting, self._waiting = self._waiting, {}
        if self._connection is not None:
            self._pause_s = _PAUSE_S
        for call in waiting:
            if failure is not None:
                call.fail(failure)
            elif not call.done():
                self.begin(call)


def _fields(metadata: Pairs) -> Fields | None:
    return fields_of(metadata) if metadata else None
