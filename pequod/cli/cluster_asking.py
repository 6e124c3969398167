"""The state of a cluster as its servers know it, and their heat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from pequod.cli.connection import connection_settings

if TYPE_CHECKING:
    from pequod.answers.heat import HeatStatistics
    from pequod.cluster.map import ClusterMap, ClusterState
    from pequod.cluster.servers import ServerEntry

#: How long a server has to answer.
ANSWER_S: Final = 2.0
#: The servers that are asked at a time.
_ASKED_MAX: Final = 64


async def state_of_server(target: str, *, with_joins: bool = False) -> ClusterState:
    """Return what a server knows of its cluster; joins are for those who may administer everything."""
    from grpc import aio
    from pequod_proto import pequod_pb2 as pb

    from pequod.cluster.messages import state_of
    from pequod.errors import UnavailableError

    async with _stub_of(target) as (stub, timeout_s):
        call = stub.FollowCluster(pb.FollowClusterRequest(once=True, with_joins=with_joins), timeout=timeout_s)
        reply = await call.read()
        call.cancel()
    if reply is aio.EOF:
        raise UnavailableError(target, "it ended the call")
    return state_of(reply)


async def heat_of_server(target: str) -> HeatStatistics:
    """Return which keys a server's processor time goes to; of a home, with the parts of its ranges."""
    from pequod_proto import pequod_pb2 as pb

    from pequod.client import decode

    async with _stub_of(target) as (stub, timeout_s):
        reply = await stub.Stats(pb.StatsRequest(with_ranges=True), timeout=timeout_s)
    return decode.statistics(reply).heat


@asynccontextmanager
async def _stub_of(target: str) -> AsyncIterator[tuple[Any, float]]:
    """Connect by the options before the command; yield what calls a server, and how long that may take.

    Raises:
        PequodError: In the place of what a call ends with.
    """
    from grpc import aio
    from pequod_proto.pequod_pb2_grpc import PequodStub

    from pequod.client import decode
    from pequod.client.credentials import Credentials

    settings = connection_settings()
    timeout_s = settings.get("timeout_s", ANSWER_S)
    credentials = Credentials(
        tls=settings["tls"],
        ca=settings["ca"],
        certificate=settings["certificate"],
        key=settings["key"],
        token=settings["token"],
        insecure=settings["insecure"],
    )
    async with credentials.connector(target, ())() as channel:
        try:
            yield PequodStub(credentials.bearing(channel)), timeout_s  # type: ignore[no-untyped-call]
        except aio.AioRpcError as error:
            raise decode.call_error(error, target, timeout_s) from None


async def maps_of(servers: Sequence[ServerEntry]) -> list[ClusterMap | None]:
    """Return the map that each server goes by, without its joins; None for one that does not answer."""
    from asyncio import Semaphore, gather

    from pequod.errors import PequodError

    places = Semaphore(_ASKED_MAX)

    async def ask(server: ServerEntry) -> ClusterMap | None:
        async with places:
            try:
                return (await state_of_server(server.address)).map
            except PequodError:
                return None

    return list(await gather(*map(ask, servers)))


async def heats_of(servers: Sequence[ServerEntry]) -> list[HeatStatistics | None]:
    """Return the heat of each server; None for one that does not answer."""
    from asyncio import Semaphore, gather

    from pequod.errors import PequodError

    places = Semaphore(_ASKED_MAX)

    async def ask(server: ServerEntry) -> HeatStatistics | None:
        async with places:
            try:
                return await heat_of_server(server.address)
            except PequodError:
                return None

    return list(await gather(*map(ask, servers)))
