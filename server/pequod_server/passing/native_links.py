"""Reads that other workers answer, without a Python object for each: the sockets, and what the native core has to know.

    client -> WireConnection -> HotCalls: not quick here -> NativeLinks, one to each worker -> its unix socket
                                                                                             |
    client <- WireConnection <- HotCalls <------------------ replies <- RelayDoor <----------+

A call goes this way at most once. It becomes a call as any other, which Python passes on, if the other worker does not
answer it at once, is away, or keeps silent, and in time for its deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, cast

from pequod.cluster.grouping import Placement
from pequod.cluster.map import ClusterState
from pequod.native.http2 import NativeHotCalls, SlowCall
from pequod.native.http2.relay import NativeRelayLink, new_owners, new_relay_link, relay_by, relay_by_none
from pequod_server.cluster.member import Member
from pequod_server.passing.shared import SharedTables
from pequod_server.worker import HOME_ID, Worker

log = logging.getLogger("pequod.server")

#: One read of a link.
_READ_BYTES: Final = 64 << 10
#: The pauses between tries to reach a worker that is away.
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
#: How often links with calls are looked at; how long before its deadline a call is left to Python; and for how long a
#: worker that has calls may keep silent.
_LOOK_S: Final = 0.025
_MARGIN_S: Final = 0.06
_SILENCE_S: Final = 1.0
#: The longest id of a server that the core takes.
_ID_BYTES_MAX: Final = 64


def relay_path(door: str) -> str:
    """Return the path of the socket for reads that other workers pass on, by the door of a worker.

    >>> relay_path("unix:/run/w1.sock")
    '/run/w1.relay.sock'
    """
    return f"{door.removeprefix('unix:').removesuffix('.sock')}.relay.sock"


class _Link(asyncio.BufferedProtocol):
    """The link to one worker, which is connected again whenever it is lost."""

    def __init__(self, path: str, native: NativeRelayLink, tell_slow: Callable[[Sequence[SlowCall]], None]) -> None:
        self.native = native
        self._path = path
        self._tell_slow = tell_slow
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.get_buffer = native.buffer  # type: ignore[assignment]
        self._task = self._loop.create_task(self._keep(), name="pequod relay")

    async def _keep(self) -> None:
        pause_s = _PAUSE_S
        while True:
            try:
                await self._loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
                continue
            pause_s = _PAUSE_S
            await self._lost.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have calls go that way."""
        self._transport = cast("asyncio.Transport", transport)
        self._lost.clear()
        self.native.open(self._buffer, self._write, self._soon)

    def connection_lost(self, _error: Exception | None) -> None:
        """Have the calls that are on the way begin anew."""
        self._transport = None
        self._lost.set()
        self.native.close()

    def buffer_updated(self, nbytes: int) -> None:
        """Send replies to their clients."""
        if (slow := self.native.updated(nbytes)) is not None:
            self._tell_slow(slow)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None, "the link stands"
        self._transport.write(data)
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)

    def _soon(self) -> None:
        self._loop.call_soon(self.native.flush)

    def _look(self) -> None:
        left = self.native.look(_MARGIN_S, _SILENCE_S)
        self._timer = self._loop.call_later(_LOOK_S, self._look) if left else None

    async def close(self) -> None:
        """Have no calls go that way any more."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        self.native.close()


class NativeLinks:
    """The links of a worker to the others, and what the native core knows of these.

    Args:
        calls: The hot calls of this worker.
        shared: Returns the tables that all workers have.
        count_max: How many calls may be on their way.
        tell_slow: Told of calls that took long.

    Requires:
        There is a running event loop.
    """

    def __init__(
        self,
        worker: Worker,
        member: Member,
        calls: NativeHotCalls,
        shared: Callable[[], SharedTables],
        count_max: int,
        tell_slow: Callable[[Sequence[SlowCall]], None],
        *,
        has_guard: bool,
    ) -> None:
        self._worker = worker
        self._member = member
        self._calls = calls
        self._shared = shared
        self._count_max = count_max
        self._tell_slow = tell_slow
        self._has_guard = has_guard
        self._links: dict[str, _Link] = {}
        #: The state that the native core goes by.
        self._told: ClusterState | None = None

    def refresh(self) -> None:
        """Go by the present map."""
        state = self._member.state
        if state is self._told:
            return
        self._told = state
        servers = state.servers
        ids = [server.id for server in servers]
        if self._worker.id not in ids or HOME_ID not in ids or any(len(one.encode()) > _ID_BYTES_MAX for one in ids):
            relay_by_none(self._calls)
            return
        links = [self._link(server.id, server.address) for server in servers]
        relay_by(
            self._calls,
            new_owners([(server.id, server.weight) for server in servers], _ordered(self._member.map.placements)),
            self._shared().tables.bounds,
            links,
            own=ids.index(self._worker.id),
            home=ids.index(HOME_ID),
            count_max=self._count_max,
            has_guard=self._has_guard,
        )

    def _link(self, name: str, address: str) -> NativeRelayLink | None:
        if name == self._worker.id:
            return None
        if (link := self._links.get(name)) is None:
            link = self._links[name] = _Link(relay_path(address), new_relay_link(self._calls), self._tell_slow)
        return link.native

    async def close(self) -> None:
        """Have no calls go to other workers any more."""
        relay_by_none(self._calls)
        for link in self._links.values():
            await link.close()


def _ordered(placements: Sequence[Placement]) -> list[tuple[bytes, int, int]]:
    """Return placements in the order in which `Grouping` looks at them."""
    ordered = sorted(placements, key=lambda one: len(one.prefix), reverse=True)
    return [(one.prefix, one.level, one.read_spread) for one in ordered]
