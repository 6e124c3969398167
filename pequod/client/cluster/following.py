"""Follows the map of a cluster: from any server that answers, the next one when it does not.

seeds, then the servers of the map ---> FollowCluster ---> state, state ...
                                             | ends, or its server is away
                                             v
                                        the next address
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.client.connection import ServerConnection
from pequod.client.retry import pause_s
from pequod.cluster.map import ClusterState
from pequod.cluster.messages import state_of
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
            self._call = call = connection.stub().FollowCluster(pb.FollowClusterRequest())
            with connection.failures():
                while True:
                    async with asyncio.timeout(None if has_told else _FIRST_S):
                        reply = await call.read()
                    if not isinstance(reply, pb.FollowClusterReply):
                        return has_told
                    self.take(state_of(reply))
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
