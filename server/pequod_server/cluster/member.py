"""This server as a member of its cluster: it registers, follows the map, and takes the map's changes in.

    coordinator --state--> Member --take_in--> joins, sources       in the order of the states, one at a time
                              |                    then: `map_version` of this server's entry
                              +---> followers      clients, by FollowCluster

What clients are told of this server itself is what it says of itself: so they know that it drains even where the
coordinator is a file, or is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from pequod.cluster.lost import check_not_lost, latest_version
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, MapChangedError, PequodError
from pequod_server.backing.turns import ended
from pequod_server.cluster.confirming import MapConfirmer, confirmed
from pequod_server.cluster.coordinator import ClusterCoordinator
from pequod_server.cluster.through_servers import ServersFollowed
from pequod_server.homes.rules import PAUSE_S, HomeRules

log = logging.getLogger("pequod.server")

#: Makes what a state says true of this server; raises a PequodError if it cannot be.
TakeIn = Callable[[ClusterState], Awaitable[None]]
#: Pauses between tries to take a map in.
_AGAIN_S: Final = 2.0
#: How long others may take to hear of it that this server drains.
_TELL_S: Final = 1.0
#: How long clients and servers have to go elsewhere before calls are refused.
_NOTICE_S: Final = 0.2
#: How long a change of the map waits for the others.
_SPREAD_S: Final = 5.0
#: How long servers may take to show themselves to a coordinator that has lost what it had. A server that starts
#: meanwhile goes by an old map; later, none ends for what another one says of itself.
_SHOWN_S: Final = 60.0


class HomesMissingError(ClusterMapError):
    """The map gives keys to a home group that has no server yet."""

    def __init__(self, group: str) -> None:
        super().__init__(f"home group {group}", "no server of the group is there; start one")
        self.group = group


class Member:
    """A server of a cluster.

    Args:
        entry: What it says of itself at first.
        take_in: See `TakeIn`.
        rules: Which keys it takes writes of; they go by each map before it is taken in otherwise.
        takes_port: Whether the port of its address is the one that it will listen at.
        confirmer: Asks homes for their maps before it starts; None: the coordinator does not lose its map.
        followed: The servers that tell it of changes, in place of the coordinator; None: that tells it itself.

    Invariants:
        1. The map's version never goes back, and `entry.map_version` is that of the last map that was taken in.
    """

    def __init__(
        self,
        coordinator: ClusterCoordinator,
        entry: ServerEntry,
        take_in: TakeIn,
        *,
        rules: HomeRules,
        takes_port: bool = False,
        confirmer: MapConfirmer | None = None,
        followed: ServersFollowed | None = None,
    ) -> None:
        self.rules = rules
        self._followed = followed
        self._takes_port = takes_port
        self._coordinator = coordinator
        self._confirmer = confirmer
        self._entry = replace(entry, state=ServerState.JOINING, prepared=0)
        self._take_in = take_in
        self._map: ClusterMap | None = None
        self._others: tuple[ServerEntry, ...] = ()
        #: The parts of the last state, and that state: made of 1,000 servers, it takes 0.2 ms.
        self._made: tuple[tuple[object, ...], ClusterState] | None = None
        #: Set and replaced whenever `state` changes.
        self._changed = asyncio.Event()
        #: Whether there is something to take in.
        self._is_behind = asyncio.Event()
        self._fault = ""
        #: The last map that was not taken, of which the log has told.
        self._refused: ClusterMap | None = None
        #: Why the coordinator's map is not the latest, as the log has it; empty: it is.
        self._lost = ""
        self._began_s = 0.0
        #: Fails if this server began by a map that is not the latest one: it has to end, and to start again.
        self.failed: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_registered = False
        #: Called when a map was taken in.
        self.on_taken_in: Callable[[], None] = _nothing
        #: When the coordinator last told something, by the monotonic clock.
        self.heard_s: float | None = None

    @property
    def place(self) -> str:
        """Where the map is, for people."""
        return self._coordinator.place

    @property
    def follows_servers(self) -> bool:
        """Whether it hears of changes from other servers: then none may hear of them from it."""
        return self._followed is not None

    @property
    def entry(self) -> ServerEntry:
        """The entry by which the others see this server."""
        return self._entry

    @property
    def map(self) -> ClusterMap:
        """The present map.

        Requires:
            `start` has returned.
        """
        assert self._map is not None
        return self._map

    @property
    def state(self) -> ClusterState:
        """The map and all servers, this one among them."""
        parts = self.map, self._others, self._entry
        if self._made is None or any(one is not other for one, other in zip(self._made[0], parts, strict=True)):
            self._made = parts, ClusterState.of(self.map, (*self._others, self._entry))
        return self._made[1]

    @property
    def fault(self) -> str:
        """Why the present map is not taken in; empty if it is, or nothing has failed yet."""
        return self._fault

    async def start(self) -> None:
        """Take in the present map.

        Raises:
            ClusterMapError: There is no map, it is not right, or servers go by a later one; or homes do not confirm it.
            PequodError: It cannot be taken in.
        """
        self.failed, self._began_s = asyncio.get_running_loop().create_future(), time.monotonic()
        self._learn(await confirmed(self._coordinator, self._confirmer))
        if ServerRole.HOME in self._entry.roles and not self._takes_port:
            # Two homes that are read themselves wait for each other's addresses.
            await self._coordinator.register(self._entry)
        while True:
            try:
                await self._go_by(self.state)
                break
            except HomesMissingError as error:
                log.warning("the start waits for a home", extra={"group": error.group, "at": self.place})
                await asyncio.sleep(_AGAIN_S)
            self._learn(await confirmed(self._coordinator, self._confirmer))
        self._entry = replace(self._entry, map_version=self.map.version)
        self.on_taken_in()
        log.info("the map is taken in", extra={"at": self.place, "version": self.map.version})
        self._tasks = [
            asyncio.create_task(self._follow(), name="pequod map"),
            asyncio.create_task(self._catch_up(), name="pequod map taken in"),
        ]
        if ServerRole.HOME in self._entry.roles:
            self._tasks.append(asyncio.create_task(self._notice_pauses(), name="pequod pauses"))

    async def show(self, port: int) -> None:
        """Register as ready.

        Args:
            port: Where the server listens.

        Raises:
            ClusterMapError: The coordinator refuses the server, or it has begun by a map that is not the latest one.
        """
        if self.failed is not None and self.failed.done():
            self.failed.result()
        host, _, named = self._entry.address.rpartition(":")
        address = f"{host}:{port if self._takes_port else named}"
        self._entry = replace(self._entry, address=address, state=ServerState.READY)
        shown: ServerEntry | None = None
        # A map may be taken in meanwhile: then others wait until they see that.
        while shown != self._entry:
            shown = self._entry
            await self._coordinator.register(shown)
        self._is_registered = True
        self._tell()

    async def drain(self) -> None:
        """Tell others that this server is about to go, and give them time to go elsewhere."""
        if not self._is_registered:
            return
        self._is_registered = False
        self._entry = replace(self._entry, state=ServerState.DRAINING)
        self._tell()
        with contextlib.suppress(TimeoutError, ClusterMapError):
            await asyncio.wait_for(self._coordinator.register(self._entry), _TELL_S)
        await asyncio.sleep(_NOTICE_S)

    async def stop(self) -> None:
        """Be no member any more."""
        tasks, self._tasks = self._tasks, []
        await ended(tasks)
        await self._coordinator.close()

    def reload(self) -> None:
        """Look for a new map at once."""
        self._coordinator.reload()

    async def states(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes."""
        told = None
        while True:
            changed = self._changed
            if (state := self.state) != told:
                told = state
                yield state
            await changed.wait()

    async def put_map(self, changed: ClusterMap) -> None:
        """Change the map, and wait until this server and all ready ones go by it; the others for some seconds.

        Raises:
            MapChangedError, MapFixedError, CoordinatorUnavailableError: See `ClusterCoordinator.put_map`.
            ClusterMapError: Servers go by a later map than the coordinator's.
            PequodError: The map was changed, and this server cannot take it in.
        """
        try:
            await self._coordinator.put_map(changed)
        except MapChangedError as error:
            check_not_lost(self.place, error.version, self.state.servers)
            raise
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SPREAD_S):
                async for state in self.states():
                    if self._fault and state.map.version >= changed.version:
                        raise ClusterMapError(f"the map's version {state.map.version}", self._fault)
                    if not laggards(state, changed.version):
                        break

    async def say_prepared(self, version: int) -> None:
        """Tell the others that a replacement of a join is prepared here.

        Args:
            version: It names the replacement.
        """
        self._entry = replace(self._entry, prepared=version)
        self._tell()
        if self._is_registered:
            await self._register_again()

    async def changed(self, most_s: float) -> None:
        """Wait for the next state, for some seconds at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), most_s)

    async def wait_for_change(self, version: int) -> None:
        """Wait, for some seconds at most, until there is a map with at least this version."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SPREAD_S):
                async for state in self.states():
                    if state.map.version >= version:
                        break

    async def _follow(self) -> None:
        async for state in (self._followed or self._coordinator).follow():
            self.heard_s = time.monotonic()
            mine = next((server for server in state.servers if server.id == self._entry.id), None)
            is_present = mine is not None and mine.map_version in (0, self._entry.map_version)
            if mine is not None and is_present and self._is_registered and mine.state is not ServerState.JOINING:
                # The state and the weight that an operator gave it; the states that it gave itself come back in their
                # order.
                self._entry = replace(self._entry, state=mine.state, weight=mine.weight)
            self._learn(state)
            # Its lease has ended, or the coordinator lost it.
            if self._is_registered and mine is None:
                await self._register_again()

    async def _register_again(self) -> None:
        try:
            await asyncio.wait_for(self._coordinator.register(self._entry), _TELL_S)
        except (TimeoutError, ClusterMapError) as error:
            log.warning("the server is not registered", extra={"at": self.place, "reason": str(error)})

    async def _notice_pauses(self) -> None:
        """Ask for the map after each pause of the process; until then, no writes are taken."""
        while True:
            self.rules.beat()
            if self.rules.must_confirm():
                try:
                    state = await self._coordinator.read()
                except (ClusterMapError, CoordinatorUnavailableError) as error:
                    log.warning("no writes are taken after a pause", extra={"at": self.place, "reason": str(error)})
                else:
                    self._learn(state)
                    self.rules.confirm(self.map)
            await asyncio.sleep(PAUSE_S / 6)

    def _learn(self, state: ClusterState) -> None:
        """Take note of a state; what is older than what is known is left out."""
        self._others = tuple(server for server in state.servers if server.id != self._entry.id)
        known = self._map
        if known is None or state.map.version > known.version:
            self._map, self._fault = state.map, ""
        elif state.map not in (known, self._refused):
            self._refused = state.map
            hint = f"give a map that is to replace version {known.version} a greater version"
            extra = {"at": self.place, "version": state.map.version, "hint": hint}
            log.error("the map is not taken; the one before stays in use", extra=extra)
        self._see_lost(state)
        self._is_behind.set()
        self._tell()

    def _see_lost(self, state: ClusterState) -> None:
        """Say it if the coordinator has lost the latest map; end if this server does not go by that, and is new."""
        try:
            check_not_lost(self.place, state.map.version, state.servers)
        except ClusterMapError as error:
            if error.reason != self._lost:
                self._lost = error.reason
                log.error("the coordinator has lost the latest map", extra={"at": self.place, "reason": error.reason})  # noqa: TRY400
            is_behind = latest_version(0, state.servers) > self.map.version
            is_new = time.monotonic() < self._began_s + _SHOWN_S
            if is_new and self.failed is not None and not self.failed.done() and is_behind:
                self.failed.set_exception(error)
        else:
            self._lost = ""

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _go_by(self, state: ClusterState) -> None:
        await self.rules.take_in(state.map)
        await self._take_in(state)

    async def _catch_up(self) -> None:
        """Take in what is new, again and again."""
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            state = self.state
            try:
                await self._go_by(state)
            except PequodError as error:
                if str(error) != self._fault:
                    extra = {"version": state.map.version, "reason": str(error)}
                    log.error("the map cannot be taken in", extra=extra)  # noqa: TRY400 - no defect of ours
                self._fault = str(error)
                self._tell()
                asyncio.get_running_loop().call_later(_AGAIN_S, self._is_behind.set)
                continue
            if self._fault or state.map.version != self._entry.map_version:
                log.info("the map is taken in", extra={"at": self.place, "version": state.map.version})
            self._fault = ""
            self.on_taken_in()
            if state.map.version != self._entry.map_version:
                self._entry = replace(self._entry, map_version=state.map.version)
                self._tell()
                if self._is_registered:
                    await self._register_again()


def _nothing() -> None:
    return None


def laggards(state: ClusterState, version: int) -> list[str]:
    """Return the ids of the ready servers that do not go by a map, or by one after it that the coordinator has.

    One that does not say its map is none of them.
    """
    return [
        server.id
        for server in state.servers
        if server.is_ready and server.map_version and not version <= server.map_version <= state.map.version
    ]
