"""A compute that comes reads what is hot at the others and will be its own, before clients read it.

    c1 says  t|ann| 0.7 cores, t|bob| 0.2      c3 will be the first compute of t|bob|, so it counts its keys: then all
    c2 says  t|liz| 0.4                        rows are there, and homes tell it what changes

The others go on answering meanwhile. What is not hot is computed when it is read, as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import sample
from typing import Final

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.cluster.map import ClusterState
from pequod.cluster.rendezvous import owners
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.commands.columns import range_arguments
from pequod.commands.kinds import COUNT
from pequod.errors import PequodError
from pequod.language.ranges import prefix_end
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.member import Member
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.stores import peer_credentials

log = logging.getLogger("pequod.server")

#: Computes that are asked what is hot: of more, some by chance.
_ASKED_MAX: Final = 64
#: How long one may take to say it.
_ANSWER_S: Final = 2.0


async def warm(served: ServedEngine, member: Member) -> None:
    """Read the hot groups that will be this server's own, if it is a compute, for some seconds at most."""
    within_s = served.config.cluster_warm_s
    if ServerRole.COMPUTE not in member.entry.roles or not within_s:
        return
    others = [one for one in computes_of(member.state) if one.is_ready and one.id != member.entry.id]
    if not others:
        return
    done = 0
    groups: list[bytes] = []
    try:
        async with asyncio.timeout(within_s):
            groups = own_groups(await _hot_groups(served, others), member)
            for group in groups:
                await _read(served, group)
                done += 1
    except TimeoutError:
        pass
    log.info("what is hot is read before clients read it", extra={"groups": done, "left": len(groups) - done})


def computes_of(state: ClusterState) -> list[ServerEntry]:
    """Return the computes of a cluster, in any state."""
    return [one for one in state.servers if ServerRole.COMPUTE in one.roles]


def own_groups(groups: Sequence[bytes], member: Member) -> list[bytes]:
    """Return those groups that clients will read at this server once it is ready, in their order."""
    known, own = member.map, member.entry.id
    weights = [(one.id, one.weight) for one in computes_of(member.state) if one.is_ready or one.id == own]
    return [group for group in groups if own in owners(group, weights)[: known.read_spread_of(group)]]


async def _hot_groups(served: ServedEngine, others: Sequence[ServerEntry]) -> list[bytes]:
    """Return the groups that other computes read most, the hottest first."""
    credentials = peer_credentials(served.config)
    asked = sample(others, min(len(others), _ASKED_MAX))
    cores: dict[bytes, float] = {}
    for heat in await asyncio.gather(*(_heat_of(credentials, one.address) for one in asked)):
        for one in heat.groups:
            if one.reads:
                cores[one.group] = cores.get(one.group, 0.0) + one.cores
    return sorted(cores, key=cores.__getitem__, reverse=True)


async def _heat_of(credentials: PeerCredentials, address: str) -> pb.HeatStatistics:
    try:
        channel = credentials.open(address)
        try:
            stub = PequodStub(channel)  # type: ignore[no-untyped-call]
            reply = await stub.Stats(pb.StatsRequest(), timeout=_ANSWER_S, metadata=credentials.metadata)
        finally:
            await channel.close()
    except (aio.AioRpcError, PequodError) as error:
        # It may be away: a map in a file has it all the same.
        log.info("a compute does not say what is hot there", extra={"at": address, "reason": str(error)})
        return pb.HeatStatistics()
    heat: pb.HeatStatistics = reply.heat
    return heat


async def _read(served: ServedEngine, group: bytes) -> None:
    try:
        await served.executor.answer(COUNT, *range_arguments(group, prefix_end(group)))
    except PequodError as error:
        # Clients who read it get the same error.
        log.warning("a hot group is not read", extra={"group": group, "reason": str(error)})
