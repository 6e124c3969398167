"""The connection of an asyncio client: its channel, made when it is needed, and calls that are retried.

call -> stub -> gRPC -> reply       its revision is noted
                  | fails
                  v
               the error as ours -> a pause and another attempt, if that cannot do harm (see retry.py)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.addresses import fault_of
from pequod.calls import WatchEvent
from pequod.client import decode
from pequod.client.awaited_stream import AwaitedStream
from pequod.client.credentials import Channel, Credentials
from pequod.client.lanes import Lane, Lanes
from pequod.client.link import Link
from pequod.client.pushed_stream import PushedStream
from pequod.client.retry import advance, is_harmless_twice, pause_s
from pequod.client.stream import BatchStream, Renew, TakeBack
from pequod.client.tracing import caller_trace
from pequod.client.watch import follow
from pequod.client.watch_ranges import RangesEvent, WatchedRange, follow_ranges
from pequod.errors import ClosedError, DeadlineExceededError, SettingError, UnavailableError

_log: Final = logging.getLogger("pequod.client")

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A server that comes back is found within two seconds; gRPC would wait for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]

#: States of a channel in which calls go out, or fail at once.
_SETTLED: Final = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
#: How often a channel that connects is looked at: at first, and later. Most connections take a millisecond or two.
_LOOK_S: Final = 0.001
_LOOK_S_MAX: Final = 0.016

#: How Execute is called on the wire.
_EXECUTE: Final = "/pequod.v1.Pequod/Execute"
#: How servers are asked whether they are well; an empty request asks for the whole server.
_HEALTH: Final = "/grpc.health.v1.Health/Check"
#: Why calls to a server fail that is in its cluster no more.
_LEFT: Final = "it has left the cluster"
#: The reply of a server that takes no calls.
_NOT_SERVING: Final = b"\x08\x02"


class ServerConnection(Link):
    """The connection to one server, for one event loop.

    Args:
        timeout_s: How long a call may take, all attempts together.
        retries: How often a call is tried again.

    Raises:
        SettingError: The target is not an address, or the token would be sent in plain text.
    """

    def __init__(self, target: str, credentials: Credentials, timeout_s: float, retries: int) -> None:
        super().__init__(target, timeout_s, retries)
        if fault := fault_of(target):
            raise SettingError("target", fault)
        self._credentials = credentials
        self._open_channel = credentials.connector(target, _OPTIONS)
        choice = credentials.choice(target)
        self.transport = choice.name
        _log.debug("calls to %s go by %s%s", target, choice.name, f": {choice.reason}" if choice.reason else "")
        #: Whether the server has left its cluster, so that calls are refused as by a server that is gone.
        self._has_left = False
        self._channel: Channel | None = None
        self._stub: Any = None
        self._execute: Any = None
        self._probe: Any = None

    def leave(self) -> None:
        """Refuse calls from now on since the server has left its cluster: their callers may ask another one."""
        self._has_left = True
        self.refuse_calls()

    async def close(self) -> None:
        """Close the channel; calls under way fail. Closing twice is no error."""
        self.refuse_calls()
        # gRPC keeps the connection open as long as the channel or a call is referenced.
        channel, self._channel, self._stub, self._execute = self._channel, None, None, None
        self._probe = None
        if channel is not None:
            await channel.close()

    def stub(self) -> Any:
        """Return the stub of the service.

        Raises:
            ClosedError: The connection is closed.
            UnavailableError: It is closed since its server has left the cluster.
        """
        if self._has_left:
            raise UnavailableError(self.target, _LEFT, is_unapplied=True)
        if self.is_closed:
            raise ClosedError
        if self._channel is None:
            self._channel = self._open_channel()
            bearing = self._credentials.bearing(self._channel)
            self._stub = PequodStub(bearing)  # type: ignore[no-untyped-call]
            is_awaited = isinstance(self._channel, aio.Channel)
            # Both take and give the bytes of messages.
            self._execute = bearing.stream_stream(_EXECUTE) if is_awaited else bearing.pushed_stream(_EXECUTE)
            self._probe = bearing.unary_unary(_HEALTH)
        return self._stub

    def open_stream(self, take_back: TakeBack, renew: Renew) -> BatchStream:
        """Open a stream of batches.

        Raises:
            ClosedError: The connection is closed.
        """
        self.stub()
        if isinstance(self._channel, aio.Channel):
            return AwaitedStream(self._execute(), self.connected, self.target, take_back, renew)
        return PushedStream(self._execute, self.target, take_back, renew)

    def sender(self) -> Lanes:
        """Return what sends batches."""
        return Lanes(lambda: Lane(self.open_stream, self.target, self.timeout_s, self.retries))

    async def connected(self) -> None:
        """Wait until the channel has a connection, or has failed to get one: a call then fails at once.

        gRPC keeps what is sent before, for 20 s, and the caller cannot know whether it goes out: the port of a load
        balancer without a server takes connections, and is silent.
        """
        self.stub()
        wait_s = _LOOK_S
        while (channel := self._channel) is not None:
            if channel.get_state(try_to_connect=True) in _SETTLED:
                return
            # A wait for the next state cannot be given up: it would leave a watch behind in gRPC.
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LOOK_S_MAX)

    @property
    def is_connected(self) -> bool:
        """Whether calls go out at once."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def probe(self, timeout_s: float) -> None:
        """Ask for a sign of life, of any kind.

        Raises:
            UnavailableError, DeadlineExceededError: There is none, or the server is about to stop.
            ClosedError: The connection is closed.
        """
        self.stub()
        with self.failures():
            try:
                if await self._probe(b"", timeout=timeout_s) == _NOT_SERVING:
                    raise UnavailableError(self.target, "it is starting or stopping", is_unapplied=True)
            except aio.AioRpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise

    async def unary(self, name: str, request: Any, text: str | None = None, *, timeout_s: float | None = None) -> Any:
        """Make a call that has one reply, and return the reply.

        Args:
            name: The name of the method.
            text: The text that a join error points into.
        """
        clock = asyncio.get_running_loop().time
        deadline, tries = clock() + (self.timeout_s if timeout_s is None else timeout_s), 0
        while True:
            call = getattr(self.stub(), name)
            try:
                with self.failures(text):
                    reply = await call(request, timeout=deadline - clock(), metadata=caller_trace())
            except UnavailableError as error:
                if not (error.is_unapplied or is_harmless_twice(name, request)):
                    raise error.of(writes=True) from None
                tries += 1
                await self.pause(error, tries, deadline)
                continue
            self.note_header(reply.header)
            return reply

    async def chunks(self, request: pb.ScanRequest, note: Callable[[pb.Header], None]) -> AsyncGenerator[pb.ScanReply]:
        """Yield the chunks of a scan; if the connection breaks, continue after the last chunk.

        Args:
            note: Notes the state that a chunk shows.
        """
        clock = asyncio.get_running_loop().time
        server_id, tries, has_more = 0, 0, True
        deadline = clock() + self.timeout_s
        call = self.stub().Scan(request, metadata=caller_trace())
        try:
            while True:
                try:
                    with self.failures():
                        async with asyncio.timeout_at(deadline):
                            chunk = await call.read()
                except UnavailableError as error:
                    if not has_more:
                        return
                    tries += 1
                    await self.pause(error, tries, deadline)
                    call = self.stub().Scan(request, metadata=caller_trace())
                    continue
                if not isinstance(chunk, pb.ScanReply):
                    return
                note(chunk.header)
                if server_id not in (0, chunk.header.server_id):
                    raise self.started_anew()
                yield chunk
                has_more = advance(request, chunk)
                server_id, tries = chunk.header.server_id, 0
                deadline = clock() + self.timeout_s
        finally:
            call.cancel()

    def watch(
        self, request: pb.WatchRequest, reconnect_s: float, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the events of a range; see `Link.watch`."""
        return follow(self, request, reconnect_s, note)

    def watch_ranges(
        self, ranges: Sequence[WatchedRange], progress_ms: int, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[RangesEvent]:
        """Yield the events of many ranges; see `Link.watch_ranges`."""
        return follow_ranges(self, ranges, progress_ms, note)

    async def pause(self, error: UnavailableError, tries: int, deadline: float) -> None:
        """Wait before the next attempt, or raise the last error if no attempt is left."""
        wait_s = pause_s(tries)
        if tries > self.retries or asyncio.get_running_loop().time() + wait_s >= deadline:
            raise error
        with self.failures():
            await asyncio.sleep(wait_s)

    def started_anew(self) -> UnavailableError:
        """Return the error of a scan whose pieces would come from two servers."""
        return UnavailableError(self.target, "it was started anew in the middle of a scan; scan again")

    @contextmanager
    def failures(self, text: str | None = None) -> Iterator[None]:
        """Raise the error of a gRPC call as ours; ``text`` is the text that a join error points into."""
        try:
            yield
        except aio.AioRpcError as error:
            raise decode.call_error(error, self.target, self.timeout_s, text) from None
        except TimeoutError:
            raise DeadlineExceededError(self.target, self.timeout_s) from None
        except asyncio.CancelledError:
            # Closing the channel cancels its calls; this must not look as if the caller's task had been cancelled.
            task = asyncio.current_task()
            if not self.is_closed or (task is not None and task.cancelling()):
                raise
            raise (UnavailableError(self.target, _LEFT) if self._has_left else ClosedError()) from None
