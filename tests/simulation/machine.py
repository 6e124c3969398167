"""A simulated server: the real engine, loader and handlers of calls, without gRPC, over a simulated store."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from pequod_server.backing import BackingStore, BackingUnavailableError
from pequod_server.calls.service import PequodService
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.database.loader import Loader
from pequod_server.ops.clock import keep_time
from pequod_server.snapshots.saving import Snapshots
from pequod_server.wire.handlers import Context

from pequod.engine import Engine
from pequod.freshness import Token
from tests.simulation.database import DATABASE
from tests.simulation.history import moments_of
from tests.simulation.links import Network
from tests.simulation.moments import Moment
from tests.simulation.store import TABLES, SimulatedStore

#: The handlers of the simulated calls have no use for gRPC's context.
NO_CONTEXT = cast("Context", None)


class Machine:
    """One server: a process on a machine, which may be killed and started again with the same joins.

    Attributes that a life gives it, as `engine`, are new after each start.
    """

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        #: How often joins came or went.
        self.join_changes = 0
        #: The machines that it is connected with as a client.
        self.upstreams: tuple[str, ...] = (DATABASE,)
        self.is_up = False
        #: Called right before the server takes in an event of the feed, and right after it.
        self.at_event: Callable[[], None] = lambda: None
        self._network = network
        self._tasks: list[asyncio.Task[None]] = []
        self._create()

    def _create(self) -> None:
        """Make the parts of a server that knows nothing yet."""
        #: The moment of the last reply; None before the first one.
        self.told: Moment | None = None
        #: Since when the server has been at its moments.
        self._moments: list[tuple[float, Moment]] = []
        self.engine = Engine(backed=TABLES)
        self.store = self._make_store()
        self.databases = Databases(
            self.engine,
            [HomeGroup("", self.store)],
            # The simulation replaces the clock.
            partial(Loader, is_write_through=True, clock=lambda: time.time()),  # noqa: PLW0108
        )
        self.loader = self.databases.named("")
        snapshots = Snapshots(None, self.engine, self.databases)
        config = ServerConfig(chunk_bytes=64)
        self.service = PequodService(self.engine, config, lambda *_: None, snapshots, self.databases)
        # Its clock was chosen before the simulation replaced the clocks.
        self.service.batches._executor.clock = lambda: time.monotonic()  # noqa: PLW0108

    def _make_store(self) -> BackingStore:
        """Return what is behind the server."""
        return SimulatedStore(self._network, self.name, self._at_event)

    def moment(self) -> Moment:
        """Return the moment of the server's rows."""
        (moment,) = moments_of(Token.parse(self.loader.followed.token))
        return moment

    def recent(self, age_s: float) -> list[Moment]:
        """Return the moments at which the server has been for so long."""
        oldest_s = asyncio.get_running_loop().time() - age_s
        since = bisect_left(self._moments, (oldest_s,))
        return [moment for _, moment in self._moments[max(since - 1, 0) :]]

    def _at_event(self) -> None:
        if self.loader.followed.token:
            self._moments.append((asyncio.get_running_loop().time(), self.moment()))
        if self.is_up:
            self.at_event()

    async def start(self) -> None:
        """Follow the database; a server that cannot is started again, as its supervisor would."""
        while True:
            try:
                await self.loader.start()
            except BackingUnavailableError:
                joins = [join.spec for join in self.engine.joins()]
                self._create()
                self.engine.add_joins(joins)
            else:
                break
        self._tasks = [asyncio.create_task(keep_time(self.engine), name=f"{self.name} clock")]
        self.is_up = True

    async def stop(self) -> None:
        """End the feed and the streams."""
        self.service.end_streams()
        await self._end()

    async def _end(self) -> None:
        self.is_up = False
        await self.loader.stop()
        for task in self._tasks:
            task.cancel()

    async def restart(self, down_s: float) -> None:
        """Lose everything but the joins, which are in the settings, and start again after a while."""
        self._cut_off()
        await self._end()
        joins = [join.spec for join in self.engine.joins()]
        self._create()
        self.engine.add_joins(joins)
        await asyncio.sleep(down_s)
        await self.start()

    def _cut_off(self) -> None:
        """Break all connections of a process that dies."""
        for upstream in self.upstreams:
            self._network.reset(self.name, upstream)

    def call(self, name: str) -> Any:
        """Return the handler of a call."""
        return getattr(self.service, name)
