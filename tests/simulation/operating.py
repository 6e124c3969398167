"""A simulated operator: runs the real `pequod cluster move`, which may fail half way, and then again or with --undo;
and `pequod cluster clean`, also while a range moves.

operator    map 4: p|c .. p|m is copied to b     rows and changes a -> b, compared     map 5, 6, 7: p|c .. p|m is b's
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Iterator, Mapping
from random import Random
from typing import Any, Final
from unittest.mock import patch

import typer
from pequod_proto import pequod_pb2 as pb
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.compute.channel import PeerCredentials

from pequod.cli import cluster_clean, cluster_move
from pequod.cluster.edits import placed
from pequod.cluster.grouping import Placement
from pequod.errors import BackingUnavailableError, PequodError
from tests.simulation.links import Network
from tests.simulation.machine import NO_CONTEXT
from tests.simulation.members import Server
from tests.simulation.peers import SimulatedChannel
from tests.simulation.registry import SimulatedCoordinator

#: How long a message of the operator takes at most.
_WAY_S: Final = 0.02


class Editor(ClusterEditor):
    """The real editor on the simulated coordinator."""

    def __init__(self, coordinator: SimulatedCoordinator) -> None:
        self._coordinator = coordinator
        self.file = None


class HomeClient:
    """As much of a client of one home as a move needs."""

    def __init__(self, operator: Operator, server: Server) -> None:
        self._operator = operator
        self._server = server

    async def close(self) -> None:
        """Do nothing."""

    async def _call(self, name: str, request: Any) -> Any:
        random = self._operator.random
        await asyncio.sleep(_WAY_S * random.random())
        if not self._server.is_up:
            raise BackingUnavailableError(self._server.name, "it is down")
        service = self._server.service
        handler = getattr(service, name)
        try:
            reply = await (_whole(handler(request, NO_CONTEXT)) if name == "Scan" else handler(request, NO_CONTEXT))
        except asyncio.CancelledError:
            if self._server.service is service and self._server.is_up:
                raise
            raise BackingUnavailableError(self._server.name, "it was killed") from None
        await asyncio.sleep(_WAY_S * random.random())
        return reply

    async def scan(
        self, first: bytes, last: bytes | None, *, limit: int | None = None, freshness: object = None
    ) -> list[tuple[bytes, bytes]]:
        """Read rows as of the latest state."""
        assert freshness is not None
        request = pb.ScanRequest(first=first, last=last, limit=limit, freshness=pb.Freshness(latest=True))
        return [
            row for reply in await self._call("Scan", request) for row in zip(reply.keys, reply.values, strict=True)
        ]


async def _whole(replies: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in replies]


class _Channel(SimulatedChannel):
    """The operator's channel to a home."""

    def __init__(self, operator: Operator, network: Network, there: str) -> None:
        super().__init__(network, "operator", there)
        self._operator = operator

    async def write(self, request: pb.PeerWriteRequest) -> pb.PeerWriteReply:
        """Write copies; what is removed is a rest, or was removed at the old home: no client has removed it here."""
        group = self._operator.group_of(self._there)
        pairs = zip(request.keys, request.present, strict=True)
        self._operator.removed.update(gone := [(group, key) for key, is_present in pairs if not is_present])
        try:
            return await super().write(request)
        finally:
            self._operator.removed.difference_update(gone)


class Operator:
    """Changes the map.

    Args:
        servers: By their addresses.

    Attributes:
        removed: Groups with keys that the operator, no client, removes there now.
        refusals: How often a command ended with an error.
    """

    def __init__(
        self, coordinator: SimulatedCoordinator, random: Random, network: Network, servers: Mapping[str, Server]
    ) -> None:
        self._network = network
        self.random = random
        self.removed: set[tuple[str, bytes]] = set()
        self.moves = 0
        self.cleanings = 0
        self.refusals = 0
        self._editor = Editor(coordinator)
        self._servers = servers

    def group_of(self, address: str) -> str:
        """Return the group of a home."""
        return self._servers[address].group

    async def move(self, first: bytes, last: bytes, group: str) -> None:
        """Move a range; after an error, one time in two, undo that."""
        if await self._commanded(first, last, group):
            self.moves += 1
        elif self.random.random() < 0.5:
            await self.undo(first, last)

    async def undo(self, first: bytes, last: bytes) -> bool:
        """End moves within a range where they are; return whether that is done."""
        return await self._commanded(first, last, None)

    async def clean(self, first: bytes, last: bytes) -> None:
        """Remove the rows of a range that moves have left at groups that do not have it."""
        try:
            await cluster_clean._clean(self._editor, (first, last), dry_run=False)
        except PequodError:
            self.refusals += 1
        else:
            self.cleanings += 1

    async def place(self) -> None:
        """Change something of the map that no answer depends on."""
        one = Placement(b"t|", self.random.randint(0, 1), self.random.randint(1, 2))
        with contextlib.suppress(PequodError):
            await self._editor.change(lambda known: placed(known, one))

    async def _commanded(self, first: bytes, last: bytes, group: str | None) -> bool:
        try:
            if group is None:
                await cluster_move._undo(self._editor, (first, last))
            else:
                await cluster_move.move_range(self._editor, (first, last), group, copied=False)
        except (PequodError, typer.Exit):
            self.refusals += 1
            return False
        return True

    @contextlib.contextmanager
    def commands(self) -> Iterator[None]:
        """Have commands reach the simulated servers, and print nothing, while the block lasts."""
        with (
            patch("pequod.client.AsyncClient", lambda address, **_: HomeClient(self, self._servers[address])),
            patch.object(PeerCredentials, "connect", lambda _, address: _Channel(self, self._network, address)),
            patch.object(cluster_move, "connection_settings", dict),
            patch.object(cluster_clean, "say", lambda _: None),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            yield
