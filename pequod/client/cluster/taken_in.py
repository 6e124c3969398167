"""Which map each server goes by, where the coordinator does not say it: a file knows nothing of the servers' progress.

    c1 tells   map 3, c1: 3, c2: ?      ---> reads go to c1 alone; c2 is asked
    c2 tells   map 3, c1: ?, c2: 3      ---> reads go to both

A compute that goes by an earlier map lacks its joins: it would answer that nothing is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from pequod.client.retry import pause_s
from pequod.cluster.map import ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClosedError, PequodError


class TakenIn:
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
        servers = [replace(one, map_version=one.map_version or self._said.get(one.id, 1)) for one in state.servers]
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
