"""The servers that a key goes to: computes for a read, homes for a write; the first is the owner, the next ones spares.

>>> from pequod.cluster.map import ClusterMap, ClusterState
>>> servers = [ServerEntry(f"c{number}", f"10.0.0.{number}:7744", group="a") for number in (1, 2, 3)]
>>> found = Owners(ClusterState.of(ClusterMap("twip", 1), servers))
>>> [server.id for server in found.readers(b"t|ann|0000000100|bob")]
['c3', 'c2', 'c1']
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from pequod.cluster.grouping import grouping
from pequod.cluster.map import ClusterState
from pequod.cluster.rendezvous import owners
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState

K = TypeVar("K")
Servers = tuple[ServerEntry, ...]
#: Groups whose servers are kept; each takes about 200 bytes.
GROUPS_MAX: Final = 65536
#: Who is asked first, among the servers with the role that is wanted.
_STATES: Final = (ServerState.READY, ServerState.DRAINING, ServerState.JOINING)


class Owners:
    """Finds the servers of keys in one state of a cluster.

    Args:
        zone: Reads go to the computes of this zone, and to others if none of it answers; empty: to all alike.

    Invariants:
        1. What is kept for a group is what would be found anew.
    """

    def __init__(self, state: ClusterState, zone: str = "") -> None:
        self.state = state
        self._zone = zone
        self._map = state.map
        self._grouping = grouping(state.map.placements)
        #: Those that reads go to.
        self.computes = _present(
            (server for server in state.servers if ServerRole.COMPUTE in server.roles), state.map.version
        )
        self._readers: dict[bytes, Servers] = {}
        self._writers: dict[tuple[str, bytes], Servers] = {}
        self._homes: dict[str, Servers] = {}

    def group_of(self, key: bytes) -> bytes:
        """Return the group of a key."""
        return self._grouping.group_of(key)

    def read_spread_of(self, group: bytes) -> int:
        """Return the number of computes over which reads of a group are spread."""
        return self._grouping.read_spread_of(group)

    def readers(self, key: bytes) -> Servers:
        """Return the computes for a read that begins at ``key``; the owner first.

        A server that is draining, or still goes by an earlier map, is none of them, unless there is no other.

        Cost:
            0.5 us if the group was asked for before.
        """
        group = self._grouping.group_of(key)
        found = self._readers.get(group)
        if found is None:
            found = _kept(self._readers, group, self._near_first(_ranked(group, self.computes)))
        return found

    def _near_first(self, servers: Servers) -> Servers:
        if not self._zone:
            return servers
        return tuple(sorted(servers, key=lambda server: server.zone != self._zone))

    def writers(self, key: bytes) -> Servers:
        """Return the homes for a write of ``key``, always the same one first; none if no home group owns it.

        A key of a range without an owner in the map, where there are no home ranges at all, goes to every home: then
        all are beside one database.
        """
        home = self._map.home_range_of(key)
        if home is None and self._map.home_ranges:
            return ()
        homes = self._homes_of("" if home is None else home.group)
        if len(homes) < 2:
            return homes
        group = self._grouping.group_of(key)
        at = ("" if home is None else home.group, group)
        found = self._writers.get(at)
        if found is None:
            found = _kept(self._writers, at, _ranked(group, homes))
        return found

    def _homes_of(self, group: str) -> Servers:
        """Return the homes of a group, or all homes."""
        found = self._homes.get(group)
        if found is None:
            found = self._homes[group] = _present(
                server
                for server in self.state.servers
                if ServerRole.HOME in server.roles and (not group or server.group == group)
            )
        return found

    def _check(self) -> None:
        for group, servers in self._readers.items():
            assert servers == self._near_first(_ranked(group, self.computes)), f"1: {group!r}"
        for (name, group), servers in self._writers.items():
            assert servers == _ranked(group, self._homes_of(name)), f"1: {group!r}"


def _present(servers: Iterable[ServerEntry], map_version: int = 0) -> Servers:
    """Return the servers in the best state that there is; if some of them have this version of the map, those."""
    given = tuple(servers)
    for state in _STATES:
        if found := tuple(server for server in given if server.state is state):
            current = tuple(server for server in found if not 0 < server.map_version < map_version)
            return current or found
    return ()


def _ranked(group: bytes, servers: Servers) -> Servers:
    by_id = {server.id: server for server in servers}
    return tuple(by_id[one] for one in owners(group, [(server.id, server.weight) for server in servers]))


def _kept(kept: dict[K, Servers], key: K, servers: Servers) -> Servers:
    if len(kept) >= GROUPS_MAX:
        kept.clear()
    kept[key] = servers
    return servers
