"""Follows the map of a cluster: from any server that answers, the next one when it does not.

seeds, then the servers of the map ---> FollowCluster ---> state, state ...
                                             | ends, or its server is away
                                             v
                                        the next address

Where the coordinator does not say which map each server goes by, as a file does not, the servers are asked:

    c1 tells   map 3, c1: 3, c2: ?      ---> reads go to c1 alone; c2 is asked
    c2 tells   map 3, c1: ?, c2: 3      ---> reads go to both

A compute that goes by an earlier map lacks its joins: it would answer that nothing is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.client.connection import ServerConnection
from pequod.client.retry import pause_s
from pequod.cluster.map import ClusterState
from pequod.cluster.messages import state_after, state_of
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClosedError, PequodError, UnavailableError

#: How long a server has to send the first state.
_FIRST_S: Final = 1.0


class MapFollowing:
    """Follows the map of a cluster.

    Args:
        connect: Returns a connection to an address.
        take: Takes each state.
        give_up: Takes the error when no address has answered, each time.
    """

    def __init__(
        self,
        seeds: tuple[str, ...],
        connect: Callable[[str], ServerConnection],
        take: Callable[[ClusterState], None],
        give_up: Callable[[PequodError], None],
    ) -> None:
        self._seeds = seeds
        self._connect = connect
        self._take = take
        self._give_up = give_up
        self._task: asyncio.Task[None] | None = None
        self._latest: ClusterState | None = None
        self._call: Any = None
        #: The address that is followed; empty for none.
        self.address = ""

    def start(self) -> None:
        """Follow from now on; starting twice is no error."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())

    def leave(self) -> None:
        """Follow another server: this one does not answer, or it has an old map."""
        if self._call is not None:
            self._call.cancel()

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        rounds = 0
        while True:
            error: PequodError | None = None
            for address in self._addresses():
                try:
                    if await self._follow_one(address):
                        rounds, error = 0, None
                        break
                except ClosedError:
                    return
                except PequodError as failed:
                    error = failed
            else:
                rounds += 1
                if error is not None:
                    self._give_up(error)
            await asyncio.sleep(pause_s(max(rounds, 1)))

    def _addresses(self) -> Iterator[str]:
        """Yield the addresses in the order in which they are tried: what the map says may be newer than the seeds."""
        present = self.address
        tried = {present, ""}
        servers = () if self._latest is None else self._latest.servers
        ready = [server.address for server in servers if server.is_ready]
        for address in (*ready, *self._seeds, *(server.address for server in servers)):
            if address not in tried:
                tried.add(address)
                yield address
        if present:
            yield present

    async def _follow_one(self, address: str) -> bool:
        """Follow one server to the end of its stream; return whether it has told a state."""
        connection = self._connect(address)
        self.address = address
        has_told = False
        try:
            self._call = call = connection.stub().FollowCluster(pb.FollowClusterRequest(differences=True))
            state: ClusterState | None = None
            with connection.failures():
                while True:
                    async with asyncio.timeout(None if has_told else _FIRST_S):
                        reply = await call.read()
                    if not isinstance(reply, pb.FollowClusterReply):
                        return has_told
                    state = state_after(state, reply)
                    self.take(state)
                    has_told = True
        except UnavailableError:
            if not has_told:
                raise
            return True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # `leave` has ended the call.
            return has_told
        finally:
            self._call = None
            await connection.close()

    async def ask(self, connection: ServerConnection) -> ClusterState:
        """Return the state that a server goes by now.

        Raises:
            PequodError: It does not tell it.
        """
        call = connection.stub().FollowCluster(pb.FollowClusterRequest())
        try:
            with connection.failures():
                async with asyncio.timeout(_FIRST_S):
                    reply = await call.read()
        finally:
            call.cancel()
        if not isinstance(reply, pb.FollowClusterReply):
            raise UnavailableError(connection.target, "it does not tell the map")
        return state_of(reply)

    def repeat(self) -> None:
        """Tell the latest state again."""
        if self._latest is not None:
            self._take(self._latest)

    def take(self, state: ClusterState) -> None:
        """Take a state, unless a newer one is known."""
        if self._latest is None or state.map.version >= self._latest.map.version:
            self._latest = state
            self._take(state)


class MapVersions:
    """Knows the maps that servers go by, and asks those that have not said it.

    Args:
        ask: Asks a server for the map that it goes by, 0 if it does not say it; raises a PequodError if it does not
            answer.
        again: Called when a server has said another one: `filled` gives another state now.
    """

    def __init__(self, ask: Callable[[ServerEntry], Awaitable[int]], again: Callable[[], None]) -> None:
        self._ask = ask
        self._again = again
        #: The versions that servers have said, by id.
        self._said: dict[str, int] = {}
        self._behind: list[ServerEntry] = []
        self._asking: asyncio.Task[None] | None = None

    def filled(self, state: ClusterState) -> ClusterState:
        """Return a state with the versions that servers have said; one that has said none goes by the first map.

        Where no server says it, as where all are of an earlier minor version, the state is as it was.
        """
        said = {server.id: server.map_version for server in state.servers if server.map_version}
        if not said:
            return state
        self._said |= said
        silent = [server for server in state.servers if not server.map_version]
        servers = [
            one if one.map_version else replace(one, map_version=self._said.get(one.id, 1)) for one in state.servers
        ]
        self._behind = [
            one
            for one in silent
            if ServerRole.COMPUTE in one.roles and 0 < self._said.get(one.id, 1) < state.map.version
        ]
        if self._behind and self._asking is None:
            self._asking = asyncio.create_task(self._ask_those_behind(), name="pequod maps of servers")
        return ClusterState.of(state.map, servers)

    async def _ask_those_behind(self) -> None:
        rounds = 0
        try:
            while self._behind:
                for server in tuple(self._behind):
                    try:
                        version = await self._ask(server)
                    except ClosedError:
                        return
                    except PequodError:
                        # It is asked again: reads do not go there before.
                        continue
                    if version != self._said.get(server.id):
                        self._said[server.id] = version
                        self._again()
                rounds += 1
                await asyncio.sleep(pause_s(rounds) if self._behind else 0)
        finally:
            self._asking = None

    async def close(self) -> None:
        """Ask no more."""
        if (asking := self._asking) is not None:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
