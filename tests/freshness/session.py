"""A session of a client that is not ours: plain gRPC, and the token of the last reply goes into the next read.

    put at A -> token 7      get after 7 at B -> waits for 7, token 9      get after 9 at A ...

One call at a time: the token of a reply names a state that holds all that the session saw or wrote before. So there is
nothing to merge, and the token stays opaque.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.commands.kinds import GET, OK, SCAN

T = TypeVar("T")
#: How long a read waits for its level, and how much longer the call may take.
WAIT_MS: Final = 1000
TIMEOUT_S: Final = 6.0
_CHANNEL: Final = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200))


class CallFailedError(Exception):
    """A call failed; ``reason`` is the server's name of the error, or else gRPC's."""

    def __init__(self, code: grpc.StatusCode, reason: str, text: str) -> None:
        super().__init__(f"{code.name} {reason}: {text}")
        self.code = code
        self.reason = reason


def channel_to(target: str) -> aio.Channel:
    """Return a channel that finds a server soon that starts again."""
    return aio.insecure_channel(target, options=_CHANNEL)


class Session:
    """A session over several servers.

    Args:
        channels: One for each server.
        has_tokens: Whether tokens are used; without them it is a client like any other.
    """

    def __init__(self, channels: Sequence[aio.Channel], *, has_tokens: bool = True) -> None:
        self._stubs: list[Any] = [PequodStub(channel) for channel in channels]  # type: ignore[no-untyped-call]
        self._has_tokens = has_tokens
        #: Of the last reply; empty before the first one.
        self.token = b""
        #: The failed calls by reason.
        self.failures: Counter[str] = Counter()

    async def put(self, server: int, key: str, value: str) -> None:
        """Write a key."""
        request = pb.PutRequest(key=key.encode(), value=value.encode())
        reply = await self._answered(lambda: self._stubs[server].Put(request, timeout=TIMEOUT_S))
        self._keep(reply.header.token)

    async def get(self, server: int, key: str) -> str | None:
        """Return the value of a key."""
        request = pb.GetRequest(key=key.encode(), freshness=self._freshness())
        reply = await self._answered(lambda: self._stubs[server].Get(request, timeout=TIMEOUT_S))
        self._keep(reply.header.token)
        return reply.value.decode() if reply.HasField("value") else None

    async def scan(self, server: int, first: str, last: str) -> dict[str, str]:
        """Return the rows of a small range."""
        request = pb.ScanRequest(first=first.encode(), last=last.encode(), one_chunk=True, freshness=self._freshness())
        reply = await self._answered(lambda: self._only(self._stubs[server].Scan(request, timeout=TIMEOUT_S)))
        self._keep(reply.header.token)
        return {key.decode(): value.decode() for key, value in zip(reply.keys, reply.values, strict=True)}

    async def batch(self, server: int, key: str, first: str, last: str) -> tuple[str | None, dict[str, str]]:
        """Return the value of a key and the rows of a range by one batch."""
        request = pb.ExecuteRequest(
            kinds=bytes([GET, SCAN]),
            arguments=[key.encode(), first.encode(), last.encode()],
            freshness=self._freshness(),
        )
        reply = await self._answered(
            lambda: self._only(self._stubs[server].Execute(iter([request]), timeout=TIMEOUT_S))
        )
        for error in reply.errors:
            self.failures[error.reason] += 1
            raise CallFailedError(_code(error.code), error.reason, error.message)
        self._keep(reply.token)
        values = iter(reply.values)
        found = next(values).decode() if reply.statuses[0] == OK else None
        return found, {row.decode(): value.decode() for row, value in zip(reply.keys, values, strict=True)}

    @staticmethod
    async def _only(stream: Any) -> Any:
        """Return the one reply of a stream."""
        replies = [reply async for reply in stream]
        assert len(replies) == 1
        return replies[0]

    def _freshness(self) -> pb.Freshness | None:
        if not self._has_tokens or not self.token:
            return None
        return pb.Freshness(after=self.token, wait_ms=WAIT_MS)

    def _keep(self, token: bytes) -> None:
        assert token or not self._has_tokens, "a reply without a token"
        self.token = token

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except aio.AioRpcError as error:
            failed = CallFailedError(_code_of(error), _reason(error), error.details() or "")
            self.failures[failed.reason] += 1
            raise failed from error


def _code_of(error: aio.AioRpcError) -> grpc.StatusCode:
    """Return the code of an error; a batch whose server dies before it is sent has one that says nothing."""
    return grpc.StatusCode.UNAVAILABLE if error.details() == "Internal error from Core" else error.code()


def _reason(error: aio.AioRpcError) -> str:
    metadata: Any = error.trailing_metadata() or ()
    for name, value in metadata:
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                found = error_details_pb2.ErrorInfo()
                if detail.Unpack(found):
                    return str(found.reason)
    return str(error.code().name)


def _code(number: int) -> grpc.StatusCode:
    return next(code for code in grpc.StatusCode if code.value[0] == number)
