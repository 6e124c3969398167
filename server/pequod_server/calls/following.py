"""The call that tells clients the map of the cluster, and who is there, until its client ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.messages import message_of_state
from pequod.errors import NoClusterError
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.member import Member
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.handlers import Context, end_call


class FollowCalls:
    """Answers FollowCluster.

    Args:
        member: This server in its cluster; None: it belongs to none.
    """

    def __init__(self, served: ServedEngine, member: Member | None) -> None:
        self._served = served
        self._member = member
        self._streams: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    def end(self) -> None:
        """End the streams now."""
        self._is_stopping = True
        for task in tuple(self._streams):
            task.cancel()

    async def follow(self, request: pb.FollowClusterRequest, _context: Context) -> AsyncIterator[pb.FollowClusterReply]:
        """Send the state of the cluster as it is, and again after changes, unless that is not wanted."""
        if self._member is None:
            raise NoClusterError("this server was started without the setting `cluster`")
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            async for state in self._member.states():
                reply = message_of_state(state, self._served.header())
                if not request.with_joins:
                    # ListJoins shows them to those who may see them.
                    reply.map.ClearField("joins")
                    reply.map.ClearField("replacement")
                yield reply
                if request.once:
                    return
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._streams.discard(task)
        end_call(stopping_status())
