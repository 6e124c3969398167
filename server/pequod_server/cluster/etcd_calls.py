"""Calls to etcd, over one of its endpoints at a time: when one does not answer, the next is asked.

    read, transaction, grant, keep, revoke     tried at all endpoints for some seconds
    watch                                      ends when its endpoint does, or has lost the leader

gRPC's own balancing is not used: it would keep to an endpoint that is cut off from the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio
from pequod_proto import etcd_pb2 as etcd

from pequod.errors import CoordinatorUnavailableError

Reply = TypeVar("Reply", bound=Message)

#: A call at one endpoint. The others take about 2 s to choose a new leader, and refuse calls until then.
_TRY_S: Final = 2.0
#: A call at all of them.
CALL_S: Final = 6.0
_PAUSE_S: Final = 0.1
#: Codes of endpoints that are away, or without a leader.
_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
#: How a node says, with the code UNKNOWN, that its own time for a call is over, such as while there is no leader.
_NO_TIME: Final = "context deadline exceeded"
#: Codes of calls that etcd refuses: it has answered, and did nothing.
_REFUSALS: Final = frozenset(
    {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT}
)
#: How etcd refuses a token that it has forgotten, or that is from before a change of users and roles.
_STALE: Final = ("invalid auth token", "auth: revision in header is old", "auth revision in header is old")
#: How etcd answers to a user and a password where it has no users yet.
_NO_USERS: Final = "authentication is not enabled"
#: How etcd refuses a lease that has ended.
_NO_LEASE: Final = "requested lease not found"
#: etcd refuses pings that come more often than every 5 s.
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    # The answer to the ping itself has a time of its own.
    ("grpc.http2.ping_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)


class EtcdAccess(NamedTuple):
    """The name, password and certificates that a caller shows to etcd."""

    #: For TLS; None: plain text.
    tls: grpc.ChannelCredentials | None = None
    #: Of etcd's own users; empty: none.
    user: str = ""
    password: str = ""


class LeaseEndedError(Exception):
    """The lease is not there any more: this server was away for longer than it lasts."""


class CompactedError(Exception):
    """The changes from a revision on are not there any more; read everything."""


class EtcdCalls:
    """The calls of etcd that a map needs.

    Args:
        endpoints: HOST:PORT of each node, at least one.
        access: What is shown to them.
    """

    def __init__(self, endpoints: Sequence[str], access: EtcdAccess | None = None) -> None:
        assert endpoints
        self.place = f"etcd at {', '.join(endpoints)}"
        self._endpoints = tuple(endpoints)
        self._access = access or EtcdAccess()
        #: Names the user in calls; nodes forget it when they start anew, and after five minutes without calls.
        self._token = ""
        #: The number of the endpoint that is asked.
        self._at = 0
        self._channels: dict[int, aio.Channel] = {}

    async def read(self, key: bytes, range_end: bytes = b"") -> etcd.RangeReply:
        """Return what all nodes agree is in a range; without ``range_end`` at one key."""
        request = etcd.RangeRequest(key=key, range_end=range_end)
        return await self._ask("/etcdserverpb.KV/Range", request, etcd.RangeReply)

    async def transact(self, request: etcd.TransactionRequest) -> etcd.TransactionReply:
        """Run a transaction.

        It may be run twice, if the answer to the first try was lost: the caller has to recognise its own work.
        """
        return await self._ask("/etcdserverpb.KV/Txn", request, etcd.TransactionReply)

    async def put_at(self, key: bytes, value: bytes, revision: int, lease: int = 0) -> etcd.TransactionReply:
        """Put a value in the place of the one of a revision, 0: of none; if another is there, the reply has that.

        It may be put twice, as in `transact`.
        """
        unchanged = etcd.Compare(target=etcd.Compare.MOD, key=key, mod_revision=revision)
        put, read = etcd.PutRequest(key=key, value=value, lease=lease), etcd.RangeRequest(key=key)
        return await self.transact(
            etcd.TransactionRequest(
                compare=[unchanged], success=[etcd.Operation(put=put)], failure=[etcd.Operation(range=read)]
            )
        )

    async def grant(self, ttl_s: int) -> int:
        """Return a new lease."""
        reply = await self._ask(
            "/etcdserverpb.Lease/LeaseGrant", etcd.LeaseGrantRequest(ttl_s=ttl_s), etcd.LeaseGrantReply
        )
        return reply.id

    async def keep(self, lease: int) -> bool:
        """Renew a lease; return whether it was still there."""
        # A stream of etcd, of which one request and one reply are enough.
        request = etcd.LeaseRequest(id=lease)
        reply = await self._ask("/etcdserverpb.Lease/LeaseKeepAlive", request, etcd.LeaseKeptReply)
        return reply.ttl_s > 0

    async def revoke(self, lease: int) -> None:
        """End a lease, with the keys that have it; one try."""
        await self._ask("/etcdserverpb.Lease/LeaseRevoke", etcd.LeaseRequest(id=lease), etcd.Empty, within_s=_TRY_S)

    async def watch(self, key: bytes, range_end: bytes, revision: int) -> AsyncGenerator[etcd.WatchReply, None]:
        """Yield the changes of a range from a revision on; the first reply has none, and says that the watch stands.

        Raises:
            CompactedError: Changes from the revision on are not there any more.
            CoordinatorUnavailableError: The endpoint went away, or is cut off from the others.
        """
        at = self._at
        call: Any = self._channel(at).stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=etcd.WatchRequest.SerializeToString,
            response_deserializer=etcd.WatchReply.FromString,
        )(metadata=(("hasleader", "true"), *self._metadata()))
        create = etcd.WatchCreate(key=key, range_end=range_end, start_revision=revision)
        try:
            await call.write(etcd.WatchRequest(create=create))
            while (reply := await call.read()) is not aio.EOF:
                if reply.compact_revision:
                    raise CompactedError
                if reply.canceled:
                    raise self._away(at, reply.cancel_reason)
                yield reply
            raise self._away(at, "the watch ended")
        except aio.AioRpcError as error:
            raise self._away(at, error.details() or error.code().name) from error
        except asyncio.InvalidStateError as error:
            raise self._away(at, str(error)) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close all connections."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _ask(self, method: str, request: Message, reply_type: type[Reply], *, within_s: float = CALL_S) -> Reply:
        """Ask one endpoint after the other until one answers.

        Raises:
            CoordinatorUnavailableError: None answered in time, or one refuses the call.
            LeaseEndedError: The call names a lease that is not there any more.
        """
        ends_s = time.monotonic() + within_s
        while True:
            at = self._at
            call: Any = self._channel(at).unary_unary(
                method, request_serializer=type(request).SerializeToString, response_deserializer=reply_type.FromString
            )
            timeout_s = max(min(_TRY_S, ends_s - time.monotonic()), _PAUSE_S)
            shown = ""
            try:
                if self._access.user and not self._token:
                    self._token = await self._authenticate(at, timeout_s)
                shown = self._token
                reply: Reply = await call(request, timeout=timeout_s, metadata=self._metadata())
                return reply
            except aio.AioRpcError as error:
                reason = error.details() or error.code().name
                if shown and reason.endswith(_STALE) and time.monotonic() < ends_s:
                    # Another call may have replaced it meanwhile, or be about to.
                    if self._token == shown:
                        self._token = ""
                    continue
                if reason.endswith(_NO_LEASE):
                    raise LeaseEndedError from error
                fault = self._away(at, reason)
                if error.code() in _REFUSALS:
                    raise CoordinatorUnavailableError(self.place, fault.reason, is_refusal=True) from error
                is_away = error.code() in _AWAY or reason.endswith(_NO_TIME)
                if not is_away or time.monotonic() + _PAUSE_S >= ends_s:
                    raise fault from error
            await asyncio.sleep(_PAUSE_S)

    async def _authenticate(self, at: int, timeout_s: float) -> str:
        """Return a token; an empty one if etcd takes calls of everybody, until its operator has it ask for users."""
        request = etcd.AuthenticateRequest(name=self._access.user, password=self._access.password)
        call: Any = self._channel(at).unary_unary(
            "/etcdserverpb.Auth/Authenticate",
            request_serializer=etcd.AuthenticateRequest.SerializeToString,
            response_deserializer=etcd.AuthenticateReply.FromString,
        )
        try:
            reply: etcd.AuthenticateReply = await call(request, timeout=timeout_s)
        except aio.AioRpcError as error:
            if (error.details() or "").endswith(_NO_USERS):
                return ""
            raise
        return reply.token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    def _channel(self, at: int) -> aio.Channel:
        channel = self._channels.get(at)
        if channel is None:
            target = self._endpoints[at]
            if self._access.tls is None:
                channel = aio.insecure_channel(target, options=_OPTIONS)
            else:
                channel = aio.secure_channel(target, self._access.tls, options=_OPTIONS)
            self._channels[at] = channel
        return channel

    def _away(self, at: int, reason: str) -> CoordinatorUnavailableError:
        """Ask the next endpoint from now on, unless others have moved on already; return the error."""
        if at == self._at:
            self._at = (at + 1) % len(self._endpoints)
        return CoordinatorUnavailableError(self.place, f"{self._endpoints[at]}: {reason}")
