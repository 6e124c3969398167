"""A channel to a home: its calls, with errors as exceptions.

The protocol is a seam: simulations put links of their own in its place.
"""

from __future__ import annotations

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
from pequod_server.homes.compute.loads import LoadCalls, LoadsEndedError
from pequod_server.homes.compute.onward import trace_metadata

#: Found dead after this long, also where the network says nothing.
_KEEPALIVE_MS: Final = 2000


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

    def connect(self, address: str) -> PeerChannel:
        """Open a channel to a home.

        Raises:
            SettingError: A file cannot be read, or the token would go over the network in plain text.
        """
        options: list[tuple[str, Any]] = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        if self.tls or self.ca is not None or self.certificate is not None:
            secure = grpc.ssl_channel_credentials(
                _read("ca", self.ca), _read("key", self.key), _read("certificate", self.certificate)
            )
            return GrpcPeerChannel(address, aio.secure_channel(address, secure, options=options), self.token)
        if self.token and not self.insecure and not is_local(address):
            raise SettingError("backing_token", f"it would go to {address} in plain text; use TLS, or say insecure")
        return GrpcPeerChannel(address, aio.insecure_channel(address, options=options), self.token)


class GrpcPeerChannel:
    """A channel over gRPC."""

    def __init__(self, address: str, channel: aio.Channel, token: str) -> None:
        self._name = f"the home {address}"
        self._channel = channel
        self._stub: Any = PequodPeerStub(channel)  # type: ignore[no-untyped-call]
        self._metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {token}"),) if token else ()
        self._loads = LoadCalls(self._name, lambda: self._stub.Loads(metadata=self._metadata))

    async def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Read ranges."""
        trace = trace_metadata()
        if not trace:
            has_begun = False
            try:
                async for reply in self._loads.load(request):
                    has_begun = True
                    yield reply
            except LoadsEndedError:
                pass
            except aio.AioRpcError as error:
                if has_begun:
                    self._fail(error)
            else:
                return
        # A trace has a span for each call. Of a load that the stream did not take nothing has come yet.
        try:
            async for reply in self._stub.Load(request, metadata=self._metadata + trace):
                yield reply
        except aio.AioRpcError as error:
            self._fail(error)

    async def feed(self, requests: AsyncIterator[pb.PeerFeedRequest]) -> AsyncIterator[pb.PeerFeedReply]:
        """Follow changes."""
        try:
            async for reply in self._stub.Feed(requests, metadata=self._metadata):
                yield reply
        except aio.AioRpcError as error:
            self._fail(error)

    async def position(self, request: pb.PeerPositionRequest) -> pb.PeerPositionReply:
        """Ask for a place."""
        reply: pb.PeerPositionReply = await self._answered(self._stub.Position, request)
        return reply

    async def write(self, request: pb.PeerWriteRequest) -> pb.PeerWriteReply:
        """Write changes."""
        reply: pb.PeerWriteReply = await self._answered(self._stub.Write, request)
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
        raise BackingUnavailableError(self._name, error.details() or error.code().name) from error


def _read(setting: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(setting, str(error)) from error
