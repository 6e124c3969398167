"""A simulated server: the real engine, loader and handlers of calls, without gRPC, over a simulated store."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from pequod_server.backing import Landing
from pequod_server.calls.service import PequodService
from pequod_server.config import ServerConfig
from pequod_server.database.loader import Loader
from pequod_server.ops.clock import keep_time
from pequod_server.ops.snapshots import Snapshots
from pequod_server.wire.handlers import Context

from pequod.engine import Engine
from tests.simulation.links import Network
from tests.simulation.store import TABLES, SimulatedStore

#: The handlers of the simulated calls have no use for gRPC's context.
NO_CONTEXT = cast("Context", None)


class Machine:
    """One server."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.engine = Engine(backed=TABLES)
        self.store = SimulatedStore(network, name)
        self.loader = Loader(
            self.engine,
            self.store,
            is_write_through=True,
            clock=lambda: time.time(),  # noqa: PLW0108 - the simulation replaces it
        )
        snapshots = Snapshots(None, self.engine, self.loader)
        config = ServerConfig(chunk_bytes=64)
        self.service = PequodService(self.engine, config, lambda *_: None, snapshots, self.loader)
        self._clock: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow the database."""
        await self.loader.start()
        self._clock = asyncio.create_task(keep_time(self.engine), name=f"{self.name} clock")

    async def stop(self) -> None:
        """End the feed and the streams."""
        self.service.end_streams()
        await self.loader.stop()
        if self._clock is not None:
            self._clock.cancel()

    @property
    def landing(self) -> Landing:
        """What the server knows to have landed."""
        return self.loader._intake.landing

    def call(self, name: str) -> Any:
        """Return the handler of a call."""
        return getattr(self.service, name)
