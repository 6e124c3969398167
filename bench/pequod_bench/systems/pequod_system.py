"""Pequod, with the timeline join in the server and without: the same server, the same client library."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from pequod_installed.names import version

from pequod.client import AsyncClient
from pequod.engine import FLAVOUR
from pequod_bench.process import started_server
from pequod_bench.systems.pequod_client import ClientSession
from pequod_bench.systems.pequod_joins import JoinSession, Timelines
from pequod_bench.systems.system import Found, Presence, Server, SystemWorkload

#: First checks of large timelines may take a while.
TIMEOUT_S: Final = 120.0


class PequodSystem:
    """`pequod serve`, and timelines that joins keep, or the client."""

    is_pinnable = True

    def __init__(self, name: str, title: str, tuning: str, how: Timelines | None) -> None:
        self.name = name
        self.title = title
        self.tuning = tuning
        #: None if the client keeps them.
        self._how = how

    @property
    def stale_s_max(self) -> float:
        """How late timelines may be."""
        return self._how.stale_s_max if self._how else 0.0

    def find(self) -> Presence:
        """Find it; it is always there."""
        return Found(Path(sys.executable), f"pequod {version()}, engine {FLAVOUR}, Python {sys.version.split()[0]}")

    @contextmanager
    def started(self, directory: Path) -> Iterator[Server]:
        """Start the server; it has no files."""
        del directory
        with started_server() as (target, pid):
            yield Server(int(target.rpartition(":")[2]), pid)

    @asynccontextmanager
    async def session(self, server: Server, workload: SystemWorkload) -> AsyncIterator[JoinSession | ClientSession]:
        """Connect."""
        async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
            yield JoinSession(client, workload, self._how) if self._how else ClientSession(client, workload)


PEQUOD: Final = PequodSystem(
    "pequod",
    "Pequod",
    "One join in the server. Batches of 256 commands through the client's batch stream, 2 under way.",
    Timelines(),
)
CLIENT_PEQUOD: Final = PequodSystem(
    "client-pequod",
    "client Pequod",
    "The same server without a join; followers are kept by poster (f|poster|user), so that one scan finds them. "
    "Messages of 256 operations and what earlier ones ask for, 2 under way.",
    None,
)
