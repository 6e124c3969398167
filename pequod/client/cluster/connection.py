"""The connections to the servers of a cluster, as one link: each call goes to the server that its key belongs to.

FollowCluster ---> state ---> Routes
                                |
call ---> its first key ------> node ---> reply
                                | does not answer
                                v
                              the next node; for a write, only if it certainly was not applied
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.calls import WatchEvent
from pequod.client.cluster.address import ClusterTarget
from pequod.client.cluster.calls import Calling
from pequod.client.cluster.dividing import in_runs
from pequod.client.cluster.following import MapFollowing, MapVersions
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routes
from pequod.client.cluster.scans import chunks_of
from pequod.client.cluster.sender import ClusterSender
from pequod.client.cluster.watching import follow_anywhere, follow_ranges_somewhere
from pequod.client.columns import Columns
from pequod.client.connection import ServerConnection
from pequod.client.credentials import Credentials
from pequod.client.link import Link
from pequod.client.stream import Deliver
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.cluster.map import ClusterState
from pequod.cluster.owners import Rankings
from pequod.cluster.servers import ServerEntry
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError
from pequod.freshness import Token


class ClusterConnection(Link):
    """The connections to the servers of a cluster, for one event loop.

    Args:
        timeout_s: How long a call may take, all attempts together.
        retries: How often all servers of a key are tried again.

    Raises:
        SettingError: The target is not one of a cluster, or the token would be sent in plain text.

    Invariants:
        1. Each server of the routes has a node. Nodes of servers that have left are closed once they are idle.
    """

    def __init__(self, target: str, credentials: Credentials, timeout_s: float, retries: int) -> None:
        super().__init__(target, timeout_s, retries)
        self._to: Final = ClusterTarget.parse(target)
        self._credentials = credentials
        # Finds faults in the settings before the first call.
        self.transport = ", ".join(sorted({self._connect(address).transport for address in self._to.addresses}))
        #: None until the map is known.
        self.routes: Routes | None = None
        #: Servers that are or were in the map, by id.
        self._nodes: dict[str, Node] = {}
        self._rankings = Rankings(self._to.zone)
        self._gone: set[Node] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._sender = ClusterSender(self)
        self._following = MapFollowing(self._to.addresses, self._connect, self._take, self._give_up)
        self._versions = MapVersions(self._ask, self._following.repeat)
        self._calling = Calling(self, self._to.server)
        #: Set when the map changes, and when it cannot be had.
        self._news = asyncio.Event()
        self._fault: PequodError | None = None
        self._failures = 0

    def _connect(self, address: str) -> ServerConnection:
        return ServerConnection(address, self._credentials, self.timeout_s, retries=0)

    def sender(self) -> ClusterSender:
        """Return what sends batches."""
        return self._sender

    async def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice is no error."""
        self.refuse_calls()
        self._fault = ClosedError()
        self._tell()
        await self._following.close()
        await self._versions.close()
        await self._sender.close()
        for node in (*self._nodes.values(), *self._gone):
            await node.close()
        await asyncio.gather(*self._closing)

    # The map.

    def learn(self) -> None:
        """Learn the map, if it is not known yet."""
        self._fault = None
        self._following.start()

    def learn_newer(self, version: int) -> None:
        """See that a map of at least this version is known soon: servers that have it tell it."""
        if self.routes is not None and self.routes.state.map.version < version:
            self._following.leave()

    async def known(self, deadline: float) -> Routes:
        """Return the routes once the map is known.

        Raises:
            PequodError: It cannot be had.
        """
        if self.is_closed:
            raise ClosedError
        self.learn()
        while self.routes is None:
            if self._fault is not None:
                raise self._fault
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                raise DeadlineExceededError(self.target, self.timeout_s) from None
        return self.routes

    async def learn_from(self, node: Node) -> None:
        """Learn the map that a server goes by now; one that does not tell it is left alone."""
        with suppress(PequodError):
            self._following.take(await self._following.ask(node.connection))

    async def _ask(self, server: ServerEntry) -> int:
        """Return the version of the map that a server goes by.

        What it says of others is left out: that of who is followed is newer.
        """
        connection = self._connect(server.address)
        try:
            state = await self._following.ask(connection)
        finally:
            await connection.close()
        return next((one.map_version for one in state.servers if one.id == server.id), 0)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _take(self, state: ClusterState) -> None:
        """Go by a state of the cluster from now on."""
        state = self._versions.filled(state)
        present: dict[str, Node] = {}
        for server in state.servers:
            node = self._nodes.get(server.id)
            if node is None or node.entry.address != server.address:
                try:
                    node = Node(server, self._connect(server.address), self)
                except PequodError as error:
                    self._give_up(error)
                    return
            node.entry = server
            present[server.id] = node
        self._gone |= {node for name, node in self._nodes.items() if present.get(name) is not node}
        self._nodes = present
        self.routes = Routes(state, present, self._rankings)
        self._failures = 0
        for node in tuple(self._gone):
            self._sender.move_reads(node)
            node.left.set()
            if node.is_idle:
                self._gone.discard(node)
                self._close_soon(node)
        self._tell()
        self._sender.go_on()

    def _close_soon(self, node: Node) -> None:
        # Calls that have chosen it, and watches, go elsewhere.
        node.connection.leave()
        task = asyncio.create_task(node.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _give_up(self, error: PequodError) -> None:
        """Note that no server has told the map; calls that wait for it fail after enough rounds."""
        self._failures += 1
        if self.routes is None and (self._failures > self.retries or not isinstance(error, UnavailableError)):
            self._fault, self._failures = error, 0
            self._tell()
            self._sender.refuse_early(error)

    def changed(self, node: Node) -> None:
        """Route by who answers now; `Node` tells it."""
        if self.routes is not None:
            self.routes.forget()
            # A slow server may be the last one that answers: what waits there is moved once there is a better one.
            for one in self._nodes.values():
                if one.is_away and self.routes.has_better(one):
                    one.left.set()
                    self._sender.move_reads(one)
                else:
                    one.left.clear()
        if node.is_away and node.entry.address == self._following.address:
            self._following.leave()

    # Calls.

    def has_reached(self, token: Token) -> bool:
        """Return True: each node knows what it has reached, and the sender asks it."""
        del token
        return True

    def run_in_order(self, columns: Columns, send: Callable[[Columns, Deliver], None], deliver: Deliver) -> None:
        """Send a batch of a session in runs, each after the reply to the one before: see `in_runs`."""
        in_runs(columns, send, deliver)

    async def unary(self, name: str, request: Any, text: str | None = None, *, timeout_s: float | None = None) -> Any:
        """Make a call that has one reply, and return the reply.

        Args:
            name: The name of the method.
            text: The text that a join error points into.
        """
        deadline = asyncio.get_running_loop().time() + (self.timeout_s if timeout_s is None else timeout_s)
        await self.known(deadline)
        reply = await self._calling.call(name, request, text, deadline)
        self.note_header(reply.header)
        return reply

    async def chunks(self, request: pb.ScanRequest, note: Callable[[pb.Header], None]) -> AsyncGenerator[pb.ScanReply]:
        """Yield the chunks of a scan; if a connection breaks, continue after the last chunk, maybe elsewhere.

        Args:
            note: Notes the state that a chunk shows.
        """
        await self.known(asyncio.get_running_loop().time() + self.timeout_s)
        async with aclosing(chunks_of(self, request, note)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def watch(
        self, request: pb.WatchRequest, reconnect_s: float, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the events of a range, the first as soon as the watch is established.

        Args:
            reconnect_s: How long to try to reach a server again.
            note: Notes the state that an event shows.
        """
        await self.known(asyncio.get_running_loop().time() + self.timeout_s)
        async with aclosing(follow_anywhere(self, request, reconnect_s, note)) as events:
            async for event in events:
                yield event

    async def watch_ranges(
        self, ranges: Sequence[WatchedRange], progress_ms: int, note: Callable[[pb.Header], None]
    ) -> AsyncGenerator[RangesEvent]:
        """Yield the events of many ranges, from the server of the first one; it ends when this server goes away.

        Args:
            note: Notes the state that an event shows.
        """
        await self.known(asyncio.get_running_loop().time() + self.timeout_s)
        async with aclosing(follow_ranges_somewhere(self, ranges, progress_ms, note)) as events:
            async for event in events:
                yield event
