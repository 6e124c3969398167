"""The servers that a key goes to: computes for a read, homes for a write; the first is the owner, the next ones spares.

A client makes `Owners` for each state of its cluster, and gives them the `Rankings` of the states before.

>>> from pequod.cluster.map import ClusterMap, ClusterState
>>> servers = [ServerEntry(f"c{number}", f"10.0.0.{number}:7744", group="a") for number in (1, 2, 3)]
>>> found = Owners(ClusterState.of(ClusterMap("twip", 1), servers))
>>> [server.id for server in found.readers(b"t|ann|0000000100|bob")]
['c3', 'c2', 'c1']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from pequod.cluster.grouping import grouping
from pequod.cluster.map import ClusterState
from pequod.cluster.ranking import KEPT, Ranking
from pequod.cluster.rendezvous import owners
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState

K = TypeVar("K")
Servers = tuple[ServerEntry, ...]
#: Groups whose servers are kept; each takes about 200 bytes.
GROUPS_MAX: Final = 65536
#: The spares that a read has at least, if there are servers for them.
_SPARES_MIN: Final = 3
#: Who is asked first, among the servers with the role that is wanted.
_STATES: Final = (ServerState.READY, ServerState.DRAINING, ServerState.JOINING)


class Rankings:
    """The computes ranked for groups, those of a zone before the others; kept from one state to the next.

    Args:
        zone: See `Owners`.
    """

    def __init__(self, zone: str = "") -> None:
        self.zone: Final = zone
        self._near, self._far = Ranking(), Ranking()

    def update(self, state: ClusterState) -> None:
        """Rank the computes of a state, also those that no reads go to: they may be back in the next one."""
        near: list[tuple[str, float]] = []
        far: list[tuple[str, float]] = []
        for server in state.servers:
            if ServerRole.COMPUTE in server.roles:
                (near if self.is_near(server) else far).append((server.id, server.weight))
        self._near.update(near)
        self._far.update(far)

    def is_near(self, server: ServerEntry) -> bool:
        """Return whether reads go to a server before others."""
        return not self.zone or server.zone == self.zone

    def first(self, group: bytes, near: Mapping[str, ServerEntry], far: Mapping[str, ServerEntry]) -> Servers | None:
        """Return the first servers for a group among those that reads go to; None if too few are kept."""
        found: list[ServerEntry] = []
        for ranking, present in ((self._near, near), (self._far, far)):
            some = [present[name] for name in ranking.first(group) if name in present]
            if len(some) < min(_SPARES_MIN + 1, len(present)):
                return None
            found += some
            if len(some) < len(present):
                # Others of this side come before those of the other one.
                break
        return tuple(found)

    def _check(self) -> None:
        self._near._check()
        self._far._check()


class Owners:
    """Finds the servers of keys in one state of a cluster.

    Args:
        rankings: Has the zone that reads go to, if there is one: to its computes, and to others if none of it answers.
            After a later state they rank by that one.

    Invariants:
        1. What is kept for a group is what would be found anew, or its start.
    """

    def __init__(self, state: ClusterState, rankings: Rankings | None = None) -> None:
        self.state = state
        self._rankings = Rankings() if rankings is None else rankings
        self._rankings.update(state)
        self._map = state.map
        self._grouping = grouping(state.map.placements)
        #: Those that reads go to.
        self.computes = _present(
            (server for server in state.servers if ServerRole.COMPUTE in server.roles), state.map.version
        )
        self._near = {server.id: server for server in self.computes if self._rankings.is_near(server)}
        self._far = {server.id: server for server in self.computes if server.id not in self._near}
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
        """Return the first computes for a read that begins at ``key``, some at least: the owner, then its spares.

        A server that is draining, or still goes by an earlier map, is none of them, unless there is no other.

        Cost:
            0.6 us a server for a group that was never asked for; some us for one that was, in an earlier state.
        """
        group = self._grouping.group_of(key)
        found = self._readers.get(group)
        if found is None:
            found = None
            if self._grouping.read_spread_of(group) <= _SPARES_MIN and len(self.computes) > KEPT:
                found = self._rankings.first(group, self._near, self._far)
            found = _kept(self._readers, group, self.all_readers(key) if found is None else found)
        return found

    def all_readers(self, key: bytes) -> Servers:
        """Return all computes for a read that begins at ``key``; the owner first.

        Cost:
            1 us a server.
        """
        group = self._grouping.group_of(key)
        return tuple(server for side in (self._near, self._far) for server in _ranked(group, tuple(side.values())))

    def places_of(self, group: bytes) -> tuple[str, ...]:
        """Return the ids of the computes over which reads of a group are spread."""
        return tuple(server.id for server in self.readers(group)[: self.read_spread_of(group)])

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
            assert servers == self.all_readers(group)[: len(servers)], f"1: {group!r}"
            assert len(servers) > min(_SPARES_MIN, len(self.computes) - 1), f"1: {group!r}"
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
