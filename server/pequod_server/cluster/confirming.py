"""The coordinator's map beside those that homes go by, before a server listens.

    etcd    version 3           restored from an older backup, or made anew
    h1      version 5           what homes, computes and clients go by: the start waits, and ends after a while

A server that was started by the map from before would lack joins and ranges, and answer that rows are not there. Others
that are ready are asked themselves: their entries may come from the backup, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.cluster.lost import HINT, check_not_lost
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.messages import state_of
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, PequodError
from pequod_server.cluster.coordinator import ClusterCoordinator
from pequod_server.homes.compute.channel import PeerCredentials

log = logging.getLogger("pequod.server")

#: Asks a server for the map that it goes by, without its joins; raises a PequodError without an answer.
AskMap = Callable[[ServerEntry], Awaitable[ClusterMap]]
#: How long a home has for its answer.
_ANSWER_S: Final = 2.0
#: How long a start waits for homes: longer than a lease, so that those that are gone are not waited for.
WAIT_S: Final = 20.0
_AGAIN_S: Final = 1.0
#: The servers that are asked; computes are a group here.
_OF_GROUP_MAX: Final = 2
_ASKED_MAX: Final = 16


class UnconfirmedMapError(ClusterMapError):
    """The coordinator's map is not the one that homes go by, or none of them says which one that is."""


class SilentHomesError(UnconfirmedMapError):
    """No home says which map it goes by; another attempt may help."""


class MapConfirmer:
    """Asks homes, and some computes, which map they go by.

    Args:
        entry: The server that starts.
        wait_s: How long it waits for an answer that confirms the map.
    """

    def __init__(self, entry: ServerEntry, ask: AskMap, wait_s: float = WAIT_S) -> None:
        self._entry = entry
        self._ask = ask
        self.wait_s = wait_s

    async def confirm(self, place: str, state: ClusterState) -> None:
        """Pass if servers that are ready go by the map of a state or by an earlier one, or if there are none.

        A compute needs the answer of a home, if there are homes.

        Raises:
            UnconfirmedMapError: One goes by a later map, or by another one of this version.
            SilentHomesError: No home answers.
        """
        asked = self._asked(state)
        answers = list(zip(asked, await asyncio.gather(*map(self._answer, asked)), strict=True))
        known = [(server, answer) for server, answer in answers if isinstance(answer, ClusterMap)]
        try:
            check_not_lost(place, state.map.version, [replace(one, map_version=said.version) for one, said in known])
        except ClusterMapError as error:
            raise UnconfirmedMapError(place, error.reason) from None
        for one, said in known:
            if said.version == state.map.version and not _is_same(said, state.map):
                reason = f"version {said.version} of the map is there, and {one.id} goes by another map of this version"
                raise UnconfirmedMapError(place, f"{reason}; {HINT.format(address=one.address)}")
        homes = [answer for one, answer in answers if ServerRole.HOME in one.roles]
        if ServerRole.HOME not in self._entry.roles and homes and all(isinstance(one, PequodError) for one in homes):
            told = "; ".join(map(str, homes))
            raise SilentHomesError(place, f"no home says which map it goes by: {told}; start the homes first")

    def _asked(self, state: ClusterState) -> list[ServerEntry]:
        """Return some homes of each group, and some computes; those that start themselves say nothing yet."""

        def order(server: ServerEntry) -> tuple[bool, bytes]:
            digest = blake2b(f"{self._entry.id} {server.id}".encode(), digest_size=8).digest()
            return ServerRole.HOME not in server.roles, digest

        counts: dict[str, int] = {}
        asked = []
        for server in sorted(state.servers, key=order):
            if server.id == self._entry.id or server.state is ServerState.JOINING:
                continue
            count = counts[server.group] = counts.get(server.group, 0) + 1
            if count <= _OF_GROUP_MAX:
                asked.append(server)
        return asked[:_ASKED_MAX]

    async def _answer(self, server: ServerEntry) -> ClusterMap | PequodError:
        try:
            return await self._ask(server)
        except PequodError as error:
            return error


async def confirmed(coordinator: ClusterCoordinator, confirmer: MapConfirmer | None) -> ClusterState:
    """Return the present state once its map is the latest that servers and homes are known to go by.

    Args:
        confirmer: None: homes are not asked.

    Raises:
        ClusterMapError: There is no map, it is not right, or servers go by a later one.
        UnconfirmedMapError: Homes have not confirmed it within the time for that.
    """
    ends_s, told = time.monotonic() + (confirmer.wait_s if confirmer else 0.0), ""
    while True:
        try:
            state = await coordinator.read()
            check_not_lost(coordinator.place, state.map.version, state.servers)
            if confirmer is not None:
                await confirmer.confirm(coordinator.place, state)
        except CoordinatorUnavailableError as error:
            log.warning("the start waits for the map", extra={"at": coordinator.place, "reason": error.reason})
        except UnconfirmedMapError as error:
            if time.monotonic() >= ends_s:
                raise
            if error.reason != told:
                told = error.reason
                log.warning("the start waits for the homes", extra={"at": coordinator.place, "reason": told})
        else:
            return state
        await asyncio.sleep(_AGAIN_S)


def asking(credentials: PeerCredentials) -> AskMap:
    """Return what asks a server as a compute does."""

    async def ask(server: ServerEntry) -> ClusterMap:
        channel = credentials.open(server.address)
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        request = pb.FollowClusterRequest(once=True)
        try:
            async for reply in stub.FollowCluster(request, timeout=_ANSWER_S, metadata=credentials.metadata):
                return state_of(reply).map
        except aio.AioRpcError as error:
            raise ClusterMapError(f"{server.id} at {server.address}", error.details() or error.code().name) from error
        finally:
            await channel.close()
        raise ClusterMapError(f"{server.id} at {server.address}", "it ended the call")

    return ask


def _is_same(one: ClusterMap, other: ClusterMap) -> bool:
    """Return whether two maps say the same of keys; joins are not told to everybody."""
    return (one.placements, one.home_ranges) == (other.placements, other.home_ranges)
