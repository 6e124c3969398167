"""The links of a worker to the others: their unix sockets, by the native wire where it is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import grpc
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto.contract import STOPPING
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.wire.channel import NativeChannel
from pequod.wire.choice import choose
from pequod.wire.ends import NOT_APPLIED
from pequod_server.access.access_file import token_as
from pequod_server.access.guard import present_caller
from pequod_server.wire.handlers import SERVICE_PATH, CallEnded
from pequod_server.worker import HOME_BACK_S

#: A worker that is silent for this long is asked for a sign of life.
_KEEPALIVE_S: Final = 2.0
#: How often a call is tried again while the home is away.
_AGAIN_S: Final = 0.1
_OPTIONS: Final = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
#: Why a state is not there that another worker shows.
_LATE: Final = ("StaleError", "TokenLostError", "BackingUnavailableError", "BackingStaleError")
Metadata: TypeAlias = tuple[tuple[str, str], ...]


class Link:
    """The way to one worker.

    Args:
        address: Its door.
        token: What the workers trust; empty: there is no access file.
    """

    __slots__ = ("_channel", "_execute", "_token", "reached", "stub")

    def __init__(self, address: str, transport: str, token: str) -> None:
        choice = choose(transport, address, has_tls=False)
        self._channel: NativeChannel | aio.Channel = (
            aio.insecure_channel(address, options=_OPTIONS)
            if choice.place is None
            else NativeChannel(choice.place, keepalive_s=_KEEPALIVE_S)
        )
        self._token = token
        self.stub: Any = PequodStub(self._channel)  # type: ignore[no-untyped-call]
        #: Makes a stream of batches; it takes and gives the bytes of messages.
        self._execute: Callable[..., Any] = self._channel.stream_stream(f"{SERVICE_PATH}Execute")
        #: The token of the state that its latest reply showed.
        self.reached = b""

    def execute(self) -> Any:
        """Return a new stream of batches, as the present caller."""
        return self._execute(metadata=self.metadata())

    def metadata(self) -> Metadata:
        """Return what has the other worker go by the role of the present caller."""
        caller = present_caller()
        if caller is None:
            return ()
        return (("authorization", f"Bearer {token_as(self._token, caller.role().name)}"),)

    async def close(self) -> None:
        """Cut the calls under way off."""
        await self._channel.close()


class Refused:
    """How another worker has ended a call, or that it is away."""

    __slots__ = ("_error", "_reason")

    def __init__(self, error: aio.AioRpcError) -> None:
        self._error = error
        self._reason = _reason_of(error)

    @property
    def is_away(self) -> bool:
        """Whether the worker has not taken the call: it is not there, or stops."""
        return self._error.code() is grpc.StatusCode.UNAVAILABLE and self._reason in ("", STOPPING)

    @property
    def is_late(self) -> bool:
        """Whether the worker does not come to a state that this one shows."""
        return self._reason in _LATE

    @property
    def is_unapplied(self) -> bool:
        """Whether the worker has certainly done nothing of the call."""
        text = self._error.details() or ""
        return self._reason == STOPPING or (not self._reason and text.startswith(NOT_APPLIED))

    def ended(self) -> CallEnded:
        """Return the end of the call, as the other worker has ended it, or the text that it is away."""
        if self.is_away and not self._reason:
            # Clients go by the beginning: what has found no connection may be sent again.
            text = "failed to connect" if self.is_unapplied else "the connection was lost"
            return CallEnded(_Status(self._error.code(), f"{text} to a worker of the server, which is away", ()))
        trailing = tuple((key, value) for key, value in self._error.trailing_metadata() or ())
        return CallEnded(_Status(self._error.code(), self._error.details() or "", trailing))


class HomeWait:
    """Asks a call once more while the home is away, until it should have been started again."""

    __slots__ = ("_end_s",)

    def __init__(self) -> None:
        self._end_s = time.monotonic() + HOME_BACK_S

    async def pause(self, refused: Refused, *, may_repeat: bool) -> None:
        """Wait before a call that was refused is made once more.

        Raises:
            CallEnded: As the other worker has ended it; the call is not to be made once more.
        """
        if not refused.is_away or not may_repeat or time.monotonic() > self._end_s:
            raise refused.ended()
        await asyncio.sleep(_AGAIN_S)


def _reason_of(error: aio.AioRpcError) -> str:
    """Return the class of the error; empty: it is none of a server's."""
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    for detail in () if status is None else status.details:
        if detail.Unpack(info):
            return str(info.reason)
    return ""


class _Status(grpc.Status):
    """A status as it has come."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing_metadata: tuple[Any, ...]) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = trailing_metadata
