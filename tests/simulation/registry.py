"""A simulated coordinator: one map and the servers of a cluster, told to each server late, twice, or out of order.

    put_map ---> Registry ---> a server's coordinator ---> version 3, version 5, version 4 again ...

A server that cannot reach it goes on with the last state, as with etcd. An operator's change may be made although its
answer is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Final

from pequod_server.cluster.coordinator import Glance, Remains

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import CoordinatorUnavailableError, MapChangedError

#: How long an answer takes at most, and how long a server hears nothing of a change at most.
_ANSWER_S: Final = 0.02
_LATE_S: Final = 2.0
#: The share of changes that a server hears of late; that it is told an older state after; whose answer is lost.
_LATE_SHARE: Final = 0.2
_AGAIN_SHARE: Final = 0.2
_LOST_SHARE: Final = 0.05


class Registry:
    """What the coordinator knows.

    Invariants:
        1. The map's version grows by one with each change.
    """

    def __init__(self, cluster_map: ClusterMap) -> None:
        self._map = cluster_map
        self._servers: dict[str, ServerEntry] = {}
        #: Every state so far.
        self.states: list[ClusterState] = []
        self._changed = asyncio.Event()
        #: Servers that do not reach it.
        self.cut_off: set[str] = set()
        self._note()

    @property
    def state(self) -> ClusterState:
        """The present state."""
        return self.states[-1]

    def put_map(self, changed: ClusterMap) -> None:
        """Put a map in the place of the one whose version is lower by one."""
        if changed.version != self._map.version + 1:
            raise MapChangedError(self._map.version)
        self._map = changed
        self._note()

    def register(self, entry: ServerEntry) -> None:
        """Show a server."""
        if self._servers.get(entry.id) != entry:
            self._servers[entry.id] = entry
            self._note()

    def forget(self, server_id: str) -> None:
        """Show a server no more: its lease has ended."""
        if self._servers.pop(server_id, None) is not None:
            self._note()

    async def changed(self, count: int) -> None:
        """Wait until there are more states than so many."""
        while len(self.states) <= count:
            await self._changed.wait()

    def _note(self) -> None:
        self.states.append(ClusterState.of(self._map, self._servers.values()))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class SimulatedCoordinator:
    """The way of one server, or of an operator, to the registry."""

    def __init__(self, registry: Registry, random: Random, name: str) -> None:
        self._registry = registry
        self._random = random
        self._name = name
        self._wanted: ServerEntry | None = None
        self._is_shown = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        """Where the map is."""
        return "a simulated coordinator"

    async def _take_a_while(self) -> None:
        await asyncio.sleep(_ANSWER_S * self._random.random())
        if self._name in self._registry.cut_off:
            raise CoordinatorUnavailableError(self.place, "the simulation has cut the link")

    async def read(self) -> ClusterState:
        """Return the present state."""
        await self._take_a_while()
        return self._registry.state

    async def look(self, *ids: str) -> Glance:
        """Return the version of the map, and the entries of some servers."""
        state = await self.read()
        found = {server.id: server for server in state.servers}
        return Glance(state.map.version, tuple(map(found.get, ids)))

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield states, the latest at some time after each change, and now and then an older one after it."""
        registry, random, told = self._registry, self._random, 0
        while True:
            await registry.changed(told)
            await asyncio.sleep((_LATE_S if random.random() < _LATE_SHARE else _ANSWER_S) * random.random())
            while self._name in registry.cut_off:  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(_ANSWER_S)
            told = len(registry.states)
            yield registry.state
            if random.random() < _AGAIN_SHARE:
                # It asks another node, which is behind.
                yield registry.states[random.randrange(max(told - 5, 0), told)]
                await asyncio.sleep(_ANSWER_S)
                yield registry.state

    async def put_map(self, changed: ClusterMap) -> None:
        """Change the map; the answer may be lost."""
        await self._take_a_while()
        self._registry.put_map(changed)
        await asyncio.sleep(_ANSWER_S * self._random.random())
        if self._random.random() < _LOST_SHARE:
            raise CoordinatorUnavailableError(self.place, "its answer is lost; the map may have been changed")

    async def remains(self) -> Remains:
        """Return what there is."""
        state = await self.read()
        return Remains(state.map, state.servers)

    async def restore_map(self, kept: ClusterMap) -> None:
        """Refuse: nothing is lost here."""
        raise NotImplementedError(kept)

    async def register(self, entry: ServerEntry) -> None:
        """Show a server; where it is cut off, once it is not, however long the caller waits."""
        self._wanted = entry
        self._is_shown.clear()
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_shown(), name=f"{self._name} is shown")
        await self._is_shown.wait()

    async def _keep_shown(self) -> None:
        while True:
            await asyncio.sleep(_ANSWER_S * self._random.random())
            if self._name not in self._registry.cut_off and not self._is_shown.is_set():
                assert self._wanted is not None
                self._registry.register(self._wanted)
                self._is_shown.set()

    async def ask_state(self, server_id: str, state: ServerState) -> None:
        """Refuse: nobody drains here."""
        raise NotImplementedError(server_id, state)

    async def ask_weight(self, server_id: str, weight: float) -> None:
        """Refuse: nobody weighs here."""
        raise NotImplementedError(server_id, weight)

    def reload(self) -> None:
        """Do nothing: changes are told."""

    async def unregister(self) -> None:
        """Do nothing: the machine sees to it."""

    async def close(self) -> None:
        """Show nothing any more."""
        if self._keeper is not None:
            self._keeper.cancel()
