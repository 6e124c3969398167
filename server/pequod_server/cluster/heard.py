"""The map that another server tells, over one call of FollowCluster: all of it, and then what changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.cluster.map import ClusterState
from pequod.cluster.messages import state_after
from pequod.errors import UnavailableError
from pequod_server.cluster.coordinator import FOLLOWS
from pequod_server.cluster.through_servers import Hear
from pequod_server.homes.compute.channel import PeerCredentials


def hearing(credentials: PeerCredentials, own_id: str) -> Hear:
    """Return how a server hears from others.

    Args:
        own_id: The server that hears.
    """

    async def hear(address: str) -> AsyncGenerator[ClusterState, None]:
        channel = credentials.open(address)
        try:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            request = pb.FollowClusterRequest(with_joins=True, differences=True)
            call = stub.FollowCluster(request, metadata=(*credentials.metadata, (FOLLOWS, own_id)))
            state: ClusterState | None = None
            while True:
                state = state_after(state, await _read(call, address))
                yield state
        except aio.AioRpcError as error:
            raise UnavailableError(address, error.details() or error.code().name) from error
        finally:
            await channel.close()

    return hear


async def _read(call: Any, address: str) -> pb.FollowClusterReply:
    reply = await call.read()
    if not isinstance(reply, pb.FollowClusterReply):
        # Why it ended.
        code, details = await call.code(), await call.details()
        raise UnavailableError(address, details or str(code))
    return reply
