"""A server that follows other servers of its cluster, in place of watching etcd.

    etcd --watch--> s1, s2 --FollowCluster--> c1, c2 ... c999       what changes: the map, and who is there
    etcd <--entry and lease, edits, every 6 s a look at three keys-- c1

The look says whether the server that is followed is behind: it has no entry in etcd any more, or an earlier map. Then
the next one is followed, and with none of them, etcd is watched. What an operator asked of this server is read in etcd.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, Final, Protocol, cast

from pequod.cluster.map import ClusterState
from pequod.cluster.servers import ServerEntry
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, PequodError, UnavailableError
from pequod_server.backing.turns import ended
from pequod_server.cluster.coordinator import LEASE_S, Glance

log = logging.getLogger("pequod.server")

#: How long a server has to send the first state.
_FIRST_S: Final = 3.0
#: How long it may be without the map that etcd has.
_BEHIND_S: Final = 1.0
#: After this long without a server to follow, etcd is watched.
_AWAY_S: Final = 5.0
_PAUSE_S: Final = 0.5
#: How often servers are tried while etcd is watched.
_TRY_S: Final = 10.0

#: Yields the state of the cluster that the server at an address tells, and again after changes; raises a PequodError
#: when it does not tell any more.
Hear = Callable[[str], AsyncGenerator[ClusterState, None]]


class Watched(Protocol):
    """The coordinator that is watched where no server can be followed: see `ClusterCoordinator`."""

    @property
    def place(self) -> str:
        """Where the map is, for people."""
        ...

    def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes."""
        ...

    async def look(self, *ids: str) -> Glance:
        """Return the version of the map, and the entries of some servers.

        Raises:
            CoordinatorUnavailableError: It does not answer.
        """
        ...


class ServersFollowed:
    """Other servers, which tell of the map and of who is there.

    Args:
        coordinator: What has the map.
        cluster: The name of the cluster.
        addresses: The servers, as they are in the map.
        own_id: This server.
        hear: See `Hear`.

    Invariants:
        1. The version of the map of what `follow` yields never goes back.
    """

    def __init__(self, coordinator: Watched, cluster: str, addresses: Sequence[str], own_id: str, hear: Hear) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        #: In an order of this server's own, so that not all are behind the same one.
        self._addresses = sorted(addresses, key=lambda one: blake2b(f"{own_id} {one}".encode()).digest())
        self._own_id = own_id
        self._hear = hear
        #: The version of the last map that was yielded; and of the last one that a server told.
        self._yielded = 0
        self._told = 0
        #: This server's entry in etcd, as of the last look.
        self._mine: ServerEntry | None = None
        #: When a server that was not behind told something last.
        self._good_s = 0.0
        #: The faults of the log since a server was followed last.
        self._said: set[str] = set()

    async def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes."""
        while True:
            for part in (self._of_servers, self._of_etcd):
                async with aclosing(part()) as states:
                    async for state in states:
                        if state.map.version >= self._yielded:
                            self._yielded = state.map.version
                            yield state

    async def _of_servers(self) -> AsyncGenerator[ClusterState, None]:
        """Yield what servers tell, one after the other; end when there was none for a while."""
        self._good_s = time.monotonic()
        while time.monotonic() < self._good_s + _AWAY_S:
            for address in self._addresses:
                try:
                    async with aclosing(self._of(address)) as states:
                        async for state in states:
                            yield state
                except PequodError as error:
                    if (fault := str(error)) not in self._said:
                        self._said.add(fault)
                        log.warning("a server cannot be followed", extra={"address": address, "reason": fault})
            await asyncio.sleep(_PAUSE_S)

    async def _of_etcd(self) -> AsyncGenerator[ClusterState, None]:
        """Yield what etcd tells, until a server can be followed again."""
        log.warning("no server can be followed; this one watches etcd", extra={"at": self._coordinator.place})
        found = asyncio.create_task(self._find(), name="pequod servers to follow")
        try:
            async with aclosing(cast("AsyncGenerator[ClusterState, None]", self._coordinator.follow())) as states:
                while True:
                    heard = asyncio.ensure_future(anext(states))
                    try:
                        await asyncio.wait((heard, found), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not heard.done():
                            await ended((heard,))
                    if heard.cancelled():
                        return
                    state = heard.result()
                    self._mine = _own_of(state, self._own_id)
                    yield state
        finally:
            await ended((found,))

    async def _find(self) -> None:
        """Return when a server can be followed."""
        while True:
            await asyncio.sleep(_TRY_S)
            for address in self._addresses:
                try:
                    async with aclosing(self._of(address)) as states:
                        async for _ in states:
                            return
                except PequodError:
                    continue

    async def _of(self, address: str) -> AsyncGenerator[ClusterState, None]:
        """Yield what a server tells that is not behind.

        Raises:
            PequodError: It is away, behind, or none that can be followed.
        """
        tasks: list[asyncio.Task[Any]] = []
        async with aclosing(self._hear(address)) as told:
            try:
                async with asyncio.timeout(_FIRST_S):
                    state = await anext(told)
                source = self._source(address, state)
                self._told = state.map.version
                # Nothing of a server that is behind is taken, not even its first state.
                await self._check(address, source)
                tasks = [
                    asyncio.create_task(self._keep_checking(address, source), name="pequod server followed"),
                    _next(told),
                ]
                if self._said:
                    self._said.clear()
                    log.info("a server is followed", extra={"address": address})
                shown = None
                while True:
                    self._good_s = time.monotonic()
                    if (own := _own_of(state, self._own_id)) != self._mine:
                        await self._look(source)
                    if (mine := self._with_own(state, own)) != shown and state.map.version >= self._yielded:
                        shown = mine
                        yield mine
                    await asyncio.wait(tasks, timeout=_BEHIND_S, return_when=asyncio.FIRST_COMPLETED)
                    if tasks[0].done():
                        tasks[0].result()
                    if tasks[1].done():
                        state = tasks[1].result()
                        self._told = state.map.version
                        tasks[1] = _next(told)
            except TimeoutError:
                raise UnavailableError(address, "it does not tell the map") from None
            finally:
                await ended(tasks)

    def _source(self, address: str, state: ClusterState) -> ServerEntry:
        if state.map.cluster != self._cluster:
            raise ClusterMapError(address, f"it is a server of the cluster {state.map.cluster}")
        found = next((one for one in state.servers if one.address == address and one.id != self._own_id), None)
        if found is None:
            raise ClusterMapError(
                address, "no other server of the map has this address; give cluster_follow one that has"
            )
        return found

    async def _keep_checking(self, address: str, source: ServerEntry) -> None:
        while True:
            await asyncio.sleep(LEASE_S)
            await self._check(address, source)

    async def _check(self, address: str, source: ServerEntry) -> None:
        """Pass if a server is not behind what etcd has, or if etcd does not answer.

        Raises:
            UnavailableError: It is behind.
        """
        version, is_there = await self._look(source)
        if not is_there:
            raise UnavailableError(address, f"etcd has no entry of {source.id}: it is cut off")
        if version > self._told:
            await asyncio.sleep(_BEHIND_S)
        if version > self._told:
            raise UnavailableError(address, f"it has version {self._told} of the map, and etcd {version}")

    async def _look(self, source: ServerEntry) -> tuple[int, bool]:
        """Read this server's entry; return the map's version, and whether the other server is there."""
        try:
            glance = await self._coordinator.look(self._own_id, source.id)
        except CoordinatorUnavailableError:
            return 0, True
        self._mine, there = glance.servers
        return glance.map_version, there is not None and there.address == source.address

    def _with_own(self, state: ClusterState, own: ServerEntry | None) -> ClusterState:
        """Return a state with the entry of this server that etcd has: what servers tell of it may be older."""
        if own == self._mine:
            return state
        others = [one for one in state.servers if one.id != self._own_id]
        return ClusterState.of(state.map, others if self._mine is None else [*others, self._mine])


def _own_of(state: ClusterState, own_id: str) -> ServerEntry | None:
    return next((one for one in state.servers if one.id == own_id), None)


def _next(told: AsyncGenerator[ClusterState, None]) -> asyncio.Task[ClusterState]:
    async def read() -> ClusterState:
        return await anext(told)

    return asyncio.create_task(read(), name="pequod map told")
