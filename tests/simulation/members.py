"""Simulated servers of a cluster that go by one map: homes before the databases of their groups, and computes.

database a ==== a1, a2 ====\\
                            c1, c2      each with the real member, rules, sources and joins of the map
database b ==== b1, b2 ====/
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from pequod_server.backing.health import Backoff
from pequod_server.calls.service import PequodService
from pequod_server.cluster.installing import MapJoins
from pequod_server.cluster.member import Member
from pequod_server.cluster.sources import MapSources
from pequod_server.cluster.through_servers import ServersFollowed
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.database.loader import Loader
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.home.making import make_peer_service
from pequod_server.homes.home.service import PeerService
from pequod_server.homes.rules import HomeRules
from pequod_server.memory.admission import Admission
from pequod_server.snapshots.saving import Snapshots

from pequod.cluster.map import ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.engine import Engine
from pequod.errors import PequodError
from tests.simulation.framing import begun
from tests.simulation.links import End, Network
from tests.simulation.peers import SimulatedChannel, answer, hearing
from tests.simulation.registry import Registry, SimulatedCoordinator
from tests.simulation.store import TABLES, SimulatedStore

#: A server whose start fails is started again after this long.
_AGAIN_S: Final = 0.5
_SILENCE_S: Final = 2.0
#: How long the lease of a server that died goes on.
_LEASE_S: Final = 1.0


class Server:
    """A process on a machine, which may be killed and started again.

    Args:
        name: Its id in the cluster.
        group: That of a home; empty for a compute.
        window: How many messages of a feed are under way at most.
        followed: The addresses of servers that tell it the map in place of the coordinator; empty: that does.

    Attributes that a life gives it, as `engine`, are new after each start.
    """

    def __init__(
        self,
        network: Network,
        registry: Registry,
        random: Random,
        name: str,
        group: str,
        window: int,
        followed: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.group = group
        self.address = f"{name}:7744"
        #: The machines that it is connected with as a client, as far as anybody knows.
        self.upstreams: tuple[str, ...] = (f"database {group}",) if group else ()
        self.is_up = False
        self._network = network
        self._registry = registry
        self._random = random
        self._window = window
        self._followed = tuple(followed)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._create()
        if group:
            network.listen(self.address, self._serve)

    def _create(self) -> None:
        """Make the parts of a server that knows nothing yet."""
        #: How far its replies have come, by databases.
        self.told: dict[bytes, int] = {}
        roles = frozenset({ServerRole.HOME if self.group else ServerRole.COMPUTE})
        entry = ServerEntry(self.name, self.address, roles, self.group)
        self.engine = Engine(backed=TABLES if self.group else ())
        loop = asyncio.get_running_loop()
        groups = [HomeGroup("", self._store())] if self.group else []
        make_loader = partial(Loader, is_write_through=True, clock=lambda: time.time())  # noqa: PLW0108 - replaced
        self.databases = Databases(self.engine, groups, make_loader)
        sources = MapSources(entry, self.databases, None, self._homes)
        joins = MapJoins(self.engine)

        async def take_in(state: ClusterState) -> None:
            if not self.group:
                await sources.take_in(state)
                joins.take_in(state.map)

        coordinator = SimulatedCoordinator(self._registry, self._random, self.name)
        followed = None
        if self._followed:
            hear = hearing(self._network, self.address)
            followed = ServersFollowed(coordinator, self._registry.state.map.cluster, self._followed, self.name, hear)
        self.member = Member(coordinator, entry, take_in, rules=HomeRules(entry, loop.time), followed=followed)
        config = ServerConfig()
        self.service = PequodService(
            self.engine,
            config,
            lambda *_: None,
            Snapshots(None, self.engine, self.databases),
            self.databases,
            member=self.member,
        )
        self.peers: PeerService = make_peer_service(
            config,
            self.engine,
            self.databases,
            TABLES if self.group else (),
            self.service.server_id,
            Admission(config),
            self.member.rules,
        )

    def _store(self) -> SimulatedStore:
        return SimulatedStore(
            self._network, self.address, lambda: None, f"database {self.group}", history_name(self.group)
        )

    def _homes(self, addresses: Sequence[str], tables: Sequence[bytes]) -> PequodStore:
        self.upstreams = tuple(dict.fromkeys([*self.upstreams, *addresses]))
        return PequodStore(
            addresses,
            tables,
            connect=lambda address: SimulatedChannel(self._network, self.address, address),
            silence_s=_SILENCE_S,
            backoff=Backoff(first_s=0.02, most_s=1.0),
            clock=lambda: time.monotonic(),  # noqa: PLW0108 - the simulation replaces it
            own_id=self.name,
        )

    async def _serve(self, end: End) -> None:
        if self.is_up:
            await answer(self.peers, end, self._window, self.service)

    _starting: asyncio.Task[None]

    async def start(self) -> None:
        """Come up; a start that fails is tried again, as a supervisor would."""
        while True:
            self._starting = asyncio.create_task(self._start(), name=f"start of {self.name}")
            try:
                await self._starting
            except PequodError:
                await self._end()
                await asyncio.sleep(_AGAIN_S)
                self._create()
            except asyncio.CancelledError:
                # It was killed meanwhile; or this is the end.
                if self._starting.cancelled():
                    return
                raise
            else:
                return

    async def _start(self) -> None:
        await self.databases.start()
        await self.member.start()
        # Others that wait for this home may ask it from here on.
        self.is_up = True
        await self.member.show(7744)

    async def restart(self, down_s: float) -> None:
        """Be killed, and start again after a while: only the map and the databases remain."""
        self.is_up = False
        for task in (self._starting, *self._tasks):
            task.cancel()
        for other in self._network.neighbours(self.address):
            self._network.reset(self.address, other)
        await self._end()
        self._create()
        if down_s > _LEASE_S:
            asyncio.get_running_loop().call_later(_LEASE_S, self._registry.forget, self.name)
        await asyncio.sleep(down_s)
        await self.start()

    async def _end(self) -> None:
        self.is_up = False
        self.service.levels.stop()
        await self.member.stop()
        self.peers.stop()
        # Feeds that wait for a window end now.
        await asyncio.sleep(0.001)
        await self.databases.stop()

    async def stop(self) -> None:
        """Stop for good."""
        await self._end()

    def begin(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a call of a client: it hears nothing more when the server is killed."""
        task = begun(call, f"client of {self.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def history_name(group: str) -> bytes:
    """Return the name of a group's database in tokens."""
    return f"sim{group}".encode()
