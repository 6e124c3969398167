"""A channel to a home: its calls, with errors as exceptions.

The protocol is a seam: simulations put links of their own in its place. Loads share one standing stream, since a call
for each load costs three times as much:

    load 7, load 8  ->  one stream  ->  a piece of 8, a piece of 7, the rest of 8
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodPeerStub

from pequod.addresses import is_local
from pequod.errors import BackingUnavailableError, PequodError, SettingError
from pequod.refusals import rebuilt
from pequod.wire.channel import NativeChannel
from pequod.wire.choice import choose
from pequod.wire.tls import client_context, file_bytes
from pequod_server.homes.compute.onward import trace_metadata

_log: Final = logging.getLogger("pequod.peer")

#: Found dead after this long, also where the network says nothing.
_KEEPALIVE_S: Final = 2.0
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", int(1000 * _KEEPALIVE_S)),
    ("grpc.keepalive_timeout_ms", int(1000 * _KEEPALIVE_S)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
)
#: The errors of a write on a stream that has ended; the reader gets the full error.
_OVER: Final = (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError)


class PeerChannel(Protocol):
    """The calls of one home."""

    def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Read ranges."""
        ...

    def feed(self, requests: AsyncIterator[pb.PeerFeedRequest]) -> AsyncIterator[pb.PeerFeedReply]:
        """Follow changes."""
        ...

    async def position(self, request: pb.PeerPositionRequest) -> pb.PeerPositionReply:
        """Ask for a place."""
        ...

    async def write(self, request: pb.PeerWriteRequest) -> pb.PeerWriteReply:
        """Write changes."""
        ...

    async def write_if(self, request: pb.PeerWriteIfRequest) -> pb.PeerWriteIfReply:
        """Write a change if its condition holds."""
        ...

    async def transact(self, request: pb.PeerTransactionRequest) -> pb.PeerTransactionReply:
        """Run a transaction."""
        ...

    async def add(self, request: pb.PeerAddRequest) -> pb.PeerAddReply:
        """Add to a value."""
        ...

    async def ids(self, request: pb.PeerIdsRequest) -> pb.PeerIdsReply:
        """Return request ids that the home remembers."""
        ...

    async def take_ids(self, request: pb.PeerTakeIdsRequest) -> pb.PeerTakeIdsReply:
        """Have the home remember request ids."""
        ...

    async def close(self) -> None:
        """Cut the calls under way off."""
        ...


#: Opens a channel to an address.
Connect = Callable[[str], PeerChannel]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCredentials:
    """How a compute reaches its homes and proves who it is."""

    #: Use TLS; implied by ``ca`` and ``certificate``.
    tls: bool = False
    #: PEM files: the authority that signed the homes' certificates, the compute's own certificate and its key.
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)
    #: Send the token in plain text to other machines.
    insecure: bool = False

    #: See `pequod.wire.choice`.
    transport: str = "auto"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call: the token."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def connect(self, address: str) -> PeerChannel:
        """Open a channel to a home; see `open`."""
        return GrpcPeerChannel(address, self.open(address), self.metadata)

    def open(self, address: str) -> aio.Channel | NativeChannel:
        """Open what stubs make calls of a home through, each with `metadata`.

        Raises:
            SettingError: A file cannot be read, or the token would go over the network in plain text; or there is no
                such transport.
        """
        has_tls = self.tls or self.ca is not None or self.certificate is not None
        if self.token and not has_tls and not self.insecure and not is_local(address):
            raise SettingError("backing_token", f"it would go to {address} in plain text; use TLS, or say insecure")
        choice = choose(self.transport, address, has_tls=has_tls)
        _log.debug("calls to the home %s go by %s", address, choice.name)
        if choice.place is None:
            return self._channel_of_grpc(address, has_tls=has_tls)
        tls = client_context(self.ca, self.certificate, self.key) if has_tls else None
        return NativeChannel(choice.place, tls, keepalive_s=_KEEPALIVE_S)

    def _channel_of_grpc(self, address: str, *, has_tls: bool) -> aio.Channel:
        if not has_tls:
            return aio.insecure_channel(address, options=_OPTIONS)
        secure = grpc.ssl_channel_credentials(
            file_bytes("ca", self.ca), file_bytes("key", self.key), file_bytes("certificate", self.certificate)
        )
        return aio.secure_channel(address, secure, options=_OPTIONS)


class _LoadsEndedError(Exception):
    """The home takes no more loads on this stream; a call for this one may say why."""


class _Loads:
    """The stream of loads of one channel, which begins with the first load and again after it has ended.

    Args:
        name: The home, for people.
        begin: Begins a stream.

    Invariants:
        1. ``_waiting`` has the loads under way by their numbers, each with what came for it.
    """

    def __init__(self, name: str, begin: Callable[[], Any]) -> None:
        self._name = name
        self._begin = begin
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._number = 0
        self._waiting: dict[int, asyncio.Queue[pb.PeerLoadReply | Exception]] = {}

    async def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Yield the pieces of one load.

        Raises:
            PequodError: The home refuses it.
            _LoadsEndedError: The home ended the stream, and has not begun with this load.
            AioRpcError: The stream broke, or the home knows no such streams.
        """
        self._number += 1
        number = request.number = self._number
        came = self._waiting[number] = asyncio.Queue()
        try:
            await self._send(request)
            while True:
                reply = await came.get()
                if isinstance(reply, Exception):
                    raise reply
                if reply.HasField("refusal"):
                    raise _error_of(self._name, reply.refusal)
                yield reply
                if reply.HasField("place"):
                    return
        finally:
            del self._waiting[number]

    async def _send(self, request: pb.PeerLoadRequest) -> None:
        if self._call is None:
            self._call = self._begin()
            self._reading = asyncio.create_task(self._read(self._call), name="pequod loads from a home")
        call = self._call
        # gRPC takes one message at a time.
        async with self._writing:
            try:
                await call.write(request)
            except _OVER as error:
                if self._call is not call:
                    # The reader has told the loads that waited then.
                    raise _LoadsEndedError from error

    async def _read(self, call: Any) -> None:
        end: Exception = _LoadsEndedError()
        try:
            while (reply := await call.read()) is not aio.EOF:
                if (came := self._waiting.get(reply.number)) is not None:
                    came.put_nowait(reply)
        except aio.AioRpcError as error:
            end = error
        finally:
            self._call = None
            for came in self._waiting.values():
                came.put_nowait(end)


def _error_of(name: str, refusal: pb.CommandError) -> PequodError:
    error = rebuilt(refusal.reason, refusal.message, dict(refusal.facts))
    return BackingUnavailableError(name, refusal.message) if type(error) is PequodError else error


async def _write_all(call: Any, requests: AsyncIterator[pb.PeerFeedRequest]) -> None:
    """Write requests as they come, until the call is over: its reader gets to know why."""
    try:
        async for request in requests:
            await call.write(request)
        await call.done_writing()
    except _OVER:
        return
    except BaseException:
        call.cancel()
        raise


class GrpcPeerChannel:
    """A channel over gRPC, by either transport."""

    def __init__(
        self, address: str, channel: aio.Channel | NativeChannel, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        self._name = f"the home {address}"
        self._channel = channel
        self._stub: Any = PequodPeerStub(channel)  # type: ignore[no-untyped-call]
        self._metadata = metadata
        self._loads = _Loads(self._name, lambda: self._stub.Loads(metadata=self._metadata))

    async def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Read ranges."""
        trace = trace_metadata()
        if not trace:
            has_begun = False
            try:
                async for reply in self._loads.load(request):
                    has_begun = True
                    yield reply
            except _LoadsEndedError:
                pass
            except aio.AioRpcError as error:
                if has_begun:
                    self._fail(error)
            else:
                return
        # A trace has a span for each call. Of a load that the stream did not take nothing has come yet.
        call = self._stub.Load(request, metadata=self._metadata + trace)
        try:
            async for reply in call:
                yield reply
        except aio.AioRpcError as error:
            self._fail(error)
        finally:
            call.cancel()

    async def feed(self, requests: AsyncIterator[pb.PeerFeedRequest]) -> AsyncIterator[pb.PeerFeedReply]:
        """Follow changes."""
        call = self._stub.Feed(metadata=self._metadata)
        writing = asyncio.create_task(_write_all(call, requests), name="pequod requests of a feed")
        try:
            async for reply in call:
                yield reply
        except aio.AioRpcError as error:
            self._fail(error)
        finally:
            call.cancel()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def position(self, request: pb.PeerPositionRequest) -> pb.PeerPositionReply:
        """Ask for a place."""
        reply: pb.PeerPositionReply = await self._answered(self._stub.Position, request)
        return reply

    async def write(self, request: pb.PeerWriteRequest) -> pb.PeerWriteReply:
        """Write changes."""
        reply: pb.PeerWriteReply = await self._answered(self._stub.Write, request)
        return reply

    async def write_if(self, request: pb.PeerWriteIfRequest) -> pb.PeerWriteIfReply:
        """Write a change if its condition holds."""
        reply: pb.PeerWriteIfReply = await self._answered(self._stub.WriteIf, request)
        return reply

    async def transact(self, request: pb.PeerTransactionRequest) -> pb.PeerTransactionReply:
        """Run a transaction."""
        reply: pb.PeerTransactionReply = await self._answered(self._stub.Transaction, request)
        return reply

    async def add(self, request: pb.PeerAddRequest) -> pb.PeerAddReply:
        """Add to a value."""
        reply: pb.PeerAddReply = await self._answered(self._stub.Add, request)
        return reply

    async def ids(self, request: pb.PeerIdsRequest) -> pb.PeerIdsReply:
        """Return request ids that the home remembers."""
        reply: pb.PeerIdsReply = await self._answered(self._stub.Ids, request)
        return reply

    async def take_ids(self, request: pb.PeerTakeIdsRequest) -> pb.PeerTakeIdsReply:
        """Have the home remember request ids."""
        reply: pb.PeerTakeIdsReply = await self._answered(self._stub.TakeIds, request)
        return reply

    async def close(self) -> None:
        """Cut the calls under way off."""
        await self._channel.close()

    async def _answered(self, call: Callable[..., Awaitable[Any]], request: Any) -> Any:
        try:
            return await call(request, metadata=self._metadata + trace_metadata())
        except aio.AioRpcError as error:
            self._fail(error)

    def _fail(self, error: aio.AioRpcError) -> NoReturn:
        """Raise what a home refused as it was raised there, and all else as a home that does not answer."""
        status = rpc_status.from_call(error)
        for detail in () if status is None else status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                refusal = rebuilt(info.reason, error.details() or "", dict(info.metadata))
                if type(refusal) is not PequodError:
                    raise refusal from error
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            reason = f"it is of an earlier version, which lacks this call ({error.details()}): bring it up to date"
            raise BackingUnavailableError(self._name, reason) from error
        raise BackingUnavailableError(self._name, error.details() or error.code().name) from error
