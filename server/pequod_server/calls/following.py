"""The call that tells clients the map of the cluster, and who is there, until its client ends it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.map import ClusterState
from pequod.cluster.messages import message_of_difference, message_of_state
from pequod.errors import NoClusterError
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.coordinator import FOLLOWS
from pequod_server.cluster.member import Member
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.handlers import Context, end_call

#: Most who follow are told the same; one that is slow has a reply of its own.
_MADE_MAX: Final = 4


class FollowCalls:
    """Answers FollowCluster.

    Args:
        member: This server in its cluster; None: it belongs to none.
        shown: Where clients reach servers whose addresses are for servers alone, by id.
    """

    def __init__(self, served: ServedEngine, member: Member | None, shown: Mapping[str, str]) -> None:
        self._served = served
        self._member = member
        self._shown = shown
        self._streams: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        #: The latest replies, without what is of one call.
        self._made: deque[_Made] = deque(maxlen=_MADE_MAX)

    def end(self) -> None:
        """End the streams now."""
        self._is_stopping = True
        for task in tuple(self._streams):
            task.cancel()

    async def follow(self, request: pb.FollowClusterRequest, context: Context) -> AsyncIterator[pb.FollowClusterReply]:
        """Send the state of the cluster as it is, and again after changes, unless that is not wanted."""
        if self._member is None:
            raise NoClusterError("this server was started without the setting `cluster`")
        if self._member.follows_servers and any(name == FOLLOWS for name, _ in context.invocation_metadata() or ()):
            # Two that follow each other would hear of nothing.
            raise NoClusterError(
                "this server follows others itself (cluster_follow), and cannot be followed by servers"
            )
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            told: ClusterState | None = None
            async for state in self._member.states():
                yield self._reply(told, state, request)
                if request.once:
                    return
                told = state
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._streams.discard(task)
        end_call(stopping_status())

    def _reply(
        self, told: ClusterState | None, state: ClusterState, request: pb.FollowClusterRequest
    ) -> pb.FollowClusterReply:
        """Return what is told after a state, made once for all who are told the same."""
        before = told if request.differences else None
        same = [one for one in self._made if one.before is before and one.after is state]
        if same:
            made = same[0]
        else:
            made = _Made(
                before, state, message_of_state(state) if before is None else message_of_difference(before, state)
            )
            self._made.append(made)
        reply = pb.FollowClusterReply()
        reply.CopyFrom(made.message)
        reply.header.CopyFrom(self._served.header())
        for server in reply.servers:
            server.address = self._shown.get(server.id, server.address)
        if reply.HasField("map") and not request.with_joins:
            # ListJoins shows them to those who may see them.
            reply.map.ClearField("joins")
            reply.map.ClearField("replacement")
        return reply


class _Made(NamedTuple):
    #: The state that is known; None: none.
    before: ClusterState | None
    after: ClusterState
    message: pb.FollowClusterReply
