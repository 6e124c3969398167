"""What operators do with a cluster from a command line: the same for a file and for etcd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from pequod.cluster.document import TEMPLATE
from pequod.cluster.lost import check_not_lost
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState
from pequod.errors import ClusterMapError, MapChangedError
from pequod_server.backing.turns import ended
from pequod_server.cluster.coordinator import ClusterCoordinator, Remains
from pequod_server.cluster.etcd_calls import EtcdAccess
from pequod_server.cluster.member import laggards
from pequod_server.cluster.membership import coordinator_of
from pequod_server.cluster.static import StaticCoordinator, read_file, write_file

#: How often etcd without a map is looked at.
_LOOK_S: Final = 0.5


class _News:
    """The last state that was heard of."""

    def __init__(self) -> None:
        self.state: ClusterState | None = None
        #: Set and replaced whenever `state` changes.
        self.changed = asyncio.Event()


class ClusterEditor:
    """Shows and changes one cluster, for its operator.

    Args:
        cluster: The setting `cluster`: static:FILE or etcd:HOST:PORT,HOST:PORT/NAME.

    Raises:
        SettingError: It names no coordinator.
    """

    #: The news that `followed` hears; None: it hears nothing.
    _news: _News | None = None

    def __init__(self, cluster: str, access: EtcdAccess | None = None) -> None:
        self._coordinator: ClusterCoordinator = coordinator_of(cluster, access)
        #: The file, if the map is in one.
        self.file = Path(cluster.partition(":")[2]) if isinstance(self._coordinator, StaticCoordinator) else None

    @property
    def place(self) -> str:
        """Where the map is."""
        return self._coordinator.place

    async def latest(self) -> ClusterState:
        """Return the present state, if no server goes by a later map.

        Raises:
            ClusterMapError, CoordinatorUnavailableError: One does, or the state cannot be read.
        """
        state = await self.state()
        check_not_lost(self.place, state.map.version, state.servers)
        return state

    async def state(self) -> ClusterState:
        """Return the present state.

        Raises:
            ClusterMapError, CoordinatorUnavailableError: There is none, or it cannot be read.
        """
        return await self._coordinator.read()

    async def remains(self) -> Remains:
        """Return what there is, also where the map is lost.

        Raises:
            CoordinatorUnavailableError: It cannot be read.
        """
        return await self._coordinator.remains()

    async def begin(self, first: ClusterMap | None, wait_s: float) -> None:
        """Make the first map; None: of a file, the template with its comments; in etcd, an empty map.

        Args:
            wait_s: How long etcd without a map is watched for servers that live, and have one.

        Raises:
            ClusterMapError: There is a map already, or servers have one.
            CoordinatorUnavailableError: As `ClusterCoordinator.put_map`.
        """
        if self.file is None:
            await self._refuse_lost(wait_s)
            try:
                await self._coordinator.put_map(first or ClusterMap(self.place.rpartition(" ")[2], 1))
            except MapChangedError as error:
                raise ClusterMapError(
                    self.place, f"there is a map already, of version {error.version}; `pequod cluster status` shows it"
                ) from error
            return
        if self.file.exists():
            raise ClusterMapError(self.place, "the file is there already; edit it, or take another name")
        if first is None:
            self.file.write_text(TEMPLATE, "utf-8")
        else:
            write_file(self.file, ClusterState(first))

    async def _refuse_lost(self, wait_s: float) -> None:
        """Pass if no server shows itself that goes by a map which the coordinator has lost.

        Raises:
            ClusterMapError: One does.
        """
        ends_s = time.monotonic() + wait_s
        while True:
            known, servers = await self._coordinator.remains()
            check_not_lost(self.place, 0 if known is None else known.version, servers)
            if known is not None or time.monotonic() >= ends_s:
                return
            await asyncio.sleep(_LOOK_S)

    async def change(self, edit: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        """Change the map, and return it.

        Raises:
            ClusterMapError: The change is not possible, or servers go by a later map.
            MapChangedError: Others changed the map meanwhile; nothing is done.
            CoordinatorUnavailableError: The map cannot be read or changed.
        """
        if self._news is not None and self._news.state is not None:
            check_not_lost(self.place, self._news.state.map.version, self._news.state.servers)
            known = self._news.state.map
        else:
            known = (await self.latest()).map
        changed = edit(known)
        if self.file is None:
            await self._coordinator.put_map(changed)
        else:
            self._write(self.file, changed)
        return changed

    async def restore(self, changed: ClusterMap) -> None:
        """Put a map in the place of any earlier one, or where there is none.

        Raises:
            MapChangedError: There is a map that is as late.
            ClusterMapError, CoordinatorUnavailableError: As `change`.
        """
        if self.file is None:
            await self._coordinator.restore_map(changed)
        else:
            self._write(self.file, changed)

    def _write(self, path: Path, changed: ClusterMap) -> None:
        state = replace(read_file(path), map=changed)
        try:
            state.check_groups()
        except ClusterMapError as error:
            raise ClusterMapError(error.place, f"{error.reason}; put one into the file first") from None
        write_file(path, state)

    async def set_state(self, server_id: str, state: ServerState) -> None:
        """Have a server be ready, or draining.

        Raises:
            ClusterMapError: There is no such server.
            CoordinatorUnavailableError: The coordinator does not answer.
        """
        if self.file is None:
            await self._coordinator.ask_state(server_id, state)
        else:
            self._set(self.file, server_id, lambda entry: replace(entry, state=state))

    async def set_weight(self, server_id: str, weight: float) -> None:
        """Have a compute take another share of the groups.

        Raises:
            ClusterMapError: There is no such server, or the weight is not possible.
            CoordinatorUnavailableError: The coordinator does not answer.
        """
        if self.file is None:
            await self._coordinator.ask_weight(server_id, weight)
        else:
            self._set(self.file, server_id, lambda entry: replace(entry, weight=weight))

    def _set(self, path: Path, server_id: str, change: Callable[[ServerEntry], ServerEntry]) -> None:
        known = read_file(path)
        if server_id not in (ids := [server.id for server in known.servers]):
            raise ClusterMapError(f"{self.place}, servers", f"none has the id {server_id}; there is {', '.join(ids)}")
        servers = tuple(change(one) if one.id == server_id else one for one in known.servers)
        write_file(path, replace(known, servers=servers))

    async def taken_in(self, version: int, within_s: float, groups: Collection[str] | None = None) -> list[str]:
        """Wait until the ready servers go by a map; return the ids of those that do not after some seconds.

        Servers whose map is in files do not say it here.

        Args:
            groups: Only the homes of these count; None: all servers.
        """
        late: list[str] = []
        try:
            async with asyncio.timeout(within_s):
                async for state in self._states():
                    late = laggards(state, version)
                    if groups is not None:
                        counted = {home.id for group in groups for home in state.homes_of(group)}
                        late = [one for one in late if one in counted]
                    if state.map.version >= version and not late:
                        break
        except TimeoutError:
            pass
        return late

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Hear of changes while the block lasts, so that `change` and `taken_in` ask for nothing that was heard."""
        news = self._news = _News()

        async def hear() -> None:
            async for news.state in self._coordinator.follow():
                changed, news.changed = news.changed, asyncio.Event()
                changed.set()

        hearing = asyncio.create_task(hear(), name="pequod operator")
        try:
            yield
        finally:
            self._news = None
            await ended((hearing,))

    async def _states(self) -> AsyncIterator[ClusterState]:
        news = self._news
        if news is None:
            async for state in self._coordinator.follow():
                yield state
            return
        while True:
            changed = news.changed
            if news.state is not None:
                yield news.state
            await changed.wait()

    async def close(self) -> None:
        """Close connections."""
        await self._coordinator.close()
