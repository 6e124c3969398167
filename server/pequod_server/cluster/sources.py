"""Where a compute has base data from: the homes of each group of the map.

map        p| .. p}  a          s| .. s}  b
servers    h1, h2: a            h3: b
              |                    |
databases  PequodStore(h1, h2)  PequodStore(h3)       each with its ranges; addresses follow the servers
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError
from pequod_server.backing import KeyRange
from pequod_server.cluster.member import HomesMissingError
from pequod_server.database.assignment import tables_of
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.homes.compute.store import PequodStore

log = logging.getLogger("pequod.server")

#: Makes the store of a group from the addresses of its homes, and the tables that they own.
MakeStore = Callable[[Sequence[str], Sequence[bytes]], PequodStore]
#: How long a new group's feed may take before the server goes on without it.
_STAND_S: Final = 5.0
_LOOK_S: Final = 0.02
#: How often those that did not are looked at afterwards.
_AGAIN_S: Final = 0.2


class MapSources:
    """Has an engine's databases be those that the map says.

    Args:
        local: The server's own database, if it is a home with one.
        relays: The addresses of relays of groups, which are asked before the homes.

    Invariants:
        1. ``_stores`` has a store for each home group of other servers in the last map that was taken in.
    """

    def __init__(
        self,
        entry: ServerEntry,
        databases: Databases,
        local: HomeGroup | None,
        make: MakeStore,
        relays: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._entry = entry
        self._relays = relays
        self._databases = databases
        self._local = local
        self._make = make
        self._stores: dict[str, PequodStore] = {}
        self._addresses: dict[str, list[str]] = {}
        self._ranges: dict[str, tuple[KeyRange, ...]] | None = None
        #: The last map that was seen, and the ranges of its groups.
        self._known: ClusterMap | None = None
        self._mapped: dict[str, tuple[KeyRange, ...]] = {}
        self._tables: dict[str, list[bytes]] = {}
        #: Says when groups answer again.
        self._telling: asyncio.Task[None] | None = None

    async def take_in(self, state: ClusterState) -> None:
        """Follow the homes of the map, and have their ranges loaded from them.

        Raises:
            HomesMissingError: A group has no home yet.
            ClusterMapError: The ranges cannot be had like this.
        """
        if ServerRole.COMPUTE not in self._entry.roles:
            return
        if self._known is not state.map:
            # Most states have the map of the one before.
            self._known, self._mapped, self._tables = state.map, _ranges_of(state.map), {}
        ranges = self._mapped
        others = [group for group in ranges if group != self._entry.group]
        for group in others:
            addresses = [*self._relays.get(group, ()), *_addresses_of(state, group, self._entry)]
            self._follow(group, addresses, ranges[group])
        if ranges == self._ranges or not (others or self._ranges):
            return
        self._refuse_shared_tables(ranges)
        groups = [HomeGroup(group, self._stores[group], ranges[group]) for group in others]
        if self._local is not None:
            groups.insert(0, HomeGroup(self._local.name, self._local.store, ranges.get(self._entry.group, ())))
        try:
            await self._databases.assign(groups)
        except ValueError as error:
            raise ClusterMapError(f"the home ranges of the map's version {state.map.version}", str(error)) from None
        self._ranges = ranges
        for group in [group for group in self._stores if group not in others]:
            del self._stores[group], self._addresses[group]
        await self._stand(others)

    def _follow(self, group: str, addresses: list[str], ranges: Sequence[KeyRange]) -> None:
        """Have a group's store use the addresses of its homes; if none is there, those that it had."""
        tables = self._tables.get(group)
        if tables is None:
            try:
                tables = self._tables[group] = tables_of(ranges)
            except ValueError as error:
                raise ClusterMapError(f"the home ranges of group {group}", str(error)) from None
        if group in self._stores:
            # Before anything of a table is loaded that the group did not have.
            self._stores[group].widen(tables)
            if addresses and addresses != self._addresses[group]:
                self._stores[group].move_to(addresses)
                self._addresses[group] = addresses
            return
        if not addresses:
            raise HomesMissingError(group)
        self._stores[group] = self._make(addresses, tables)
        self._addresses[group] = addresses

    def _refuse_shared_tables(self, ranges: dict[str, tuple[KeyRange, ...]]) -> None:
        """Pass if keys that only this server has are not in tables of other groups: those would be the other's."""
        mine = self._entry.group
        if self._local is not None or ServerRole.HOME not in self._entry.roles:
            return
        theirs = {name for group, some in ranges.items() if group != mine for name in tables_of(some)}
        if shared := theirs.intersection(tables_of(ranges.get(mine, ()))):
            raise ClusterMapError(
                f"server {self._entry.id}",
                f"table {min(shared).decode('utf-8', 'backslashreplace')} is in part another group's; a home without a "
                "database that clients read from needs tables of its own",
            )

    async def _stand(self, groups: Sequence[str]) -> None:
        """Wait until the feeds of groups stand, for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STAND_S):
                while self.down(groups):  # noqa: ASYNC110 - a feed tells nobody that it stands
                    await asyncio.sleep(_LOOK_S)
        if down := self.down(groups):
            log.warning("home groups do not answer", extra={"groups": ", ".join(down)})
            if self._telling is not None:
                self._telling.cancel()
            self._telling = asyncio.create_task(self._tell_of(down), name="pequod home groups")

    async def _tell_of(self, groups: Sequence[str]) -> None:
        """Say when groups answer that did not, until their stores are closed."""
        waiting = list(groups)
        while waiting:
            await asyncio.sleep(_AGAIN_S)
            states = {group: self._stores[group].status.state for group in waiting if group in self._stores}
            if back := [group for group, state in states.items() if state == "ok"]:
                log.info("home groups answer again", extra={"groups": ", ".join(back)})
            waiting = [group for group, state in states.items() if state not in ("ok", "closed")]

    def down(self, groups: Sequence[str] | None = None) -> list[str]:
        """Return the groups, of all or of some, whose feed does not stand."""
        return [
            group
            for group, store in self._stores.items()
            if (groups is None or group in groups) and store.status.state != "ok"
        ]

    def _check(self) -> None:
        groups = {group for group in self._ranges or () if group != self._entry.group}
        assert groups <= self._stores.keys(), "1"


def _ranges_of(cluster_map: ClusterMap) -> dict[str, tuple[KeyRange, ...]]:
    """Return the ranges of each group; while a range moves, it is where it was.

    Its new group is there before the range comes, without one if it has none: so that its homes are connected by then.
    """
    ranges: dict[str, list[KeyRange]] = {}
    for home in cluster_map.home_ranges:
        ranges.setdefault(home.group, []).append(KeyRange(home.first, home.last))
        if home.coming_to:
            ranges.setdefault(home.coming_to, [])
    return {group: tuple(some) for group, some in ranges.items()}


def _addresses_of(state: ClusterState, group: str, entry: ServerEntry) -> list[str]:
    """Return the homes of a group in the order in which a compute tries them: not all try the same one first."""
    homes = [home for home in state.homes_of(group) if home.state is ServerState.READY] or state.homes_of(group)

    def order(home: ServerEntry) -> tuple[bool, bytes]:
        is_far = bool(entry.zone) and home.zone != entry.zone
        return is_far, blake2b(f"{entry.id} {home.id}".encode(), digest_size=8).digest()

    return [home.address for home in sorted(homes, key=order)]
