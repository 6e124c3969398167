r"""The map of a cluster: what the operator decides, and what every server and client goes by.

    prefix   ''      s|      t|ann|          the longest prefix of a key counts
    level     1       0        1
    key      p|bob|0000000100   ->  group p|bob|      the table and one slot
             s|ann|bob          ->  group s|          no slot: the whole table is one group

>>> ClusterMap("twip", 1, placements=(Placement(b"s|", level=0),)).group_of(b"s|ann|bob")
b's|'
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pequod.cluster.faults import check_name, is_name
from pequod.cluster.grouping import READ_SPREAD, Placement, grouping
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClusterMapError
from pequod.escapes import shown

__all__ = ["READ_SPREAD", "ClusterMap", "ClusterState", "HomeRange", "JoinReplacement", "Placement"]


#: The greatest version: messages and files take it.
VERSION_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class HomeRange:
    """Base keys that a home group owns.

    Raises:
        ClusterMapError: It is empty, or its group is no name.
    """

    first: bytes
    #: None: to the last key.
    last: bytes | None
    group: str
    #: The group that the range moves to, or has come to: writes are refused until all servers know. Empty: they are
    #: taken.
    moves_to: str = ""
    #: The group that rows are copied to while writes are taken as before; empty: none are.
    copies_to: str = ""
    #: Names the command that copies the rows: the version of the map in which it began; 0: none does.
    move: int = 0

    def __post_init__(self) -> None:
        # The text of a place takes longer than all else.
        if not is_name(self.group):
            check_name(f"{self}, group", self.group)
        if self.last is not None and self.first >= self.last:
            raise ClusterMapError(str(self), "it is empty: `first` is not below `last`")
        if self.moves_to:
            check_name(f"{self}, moves_to", self.moves_to)
        if self.copies_to:
            check_name(f"{self}, copies_to", self.copies_to)
            if self.moves_to:
                raise ClusterMapError(f"{self}, copies_to", "it moves already: `moves_to` names a group, too")
        if not 0 <= self.move <= VERSION_MAX:
            raise ClusterMapError(f"{self}, move", f"{self.move} is not from 0 to {VERSION_MAX}")

    @property
    def coming_to(self) -> str:
        """The group that takes copies of its rows; empty: the range is where it belongs."""
        return self.copies_to or ("" if self.moves_to == self.group else self.moves_to)

    @property
    def state(self) -> str:
        """What happens to it, as people read it behind its group; empty: it is at rest."""
        if self.copies_to:
            return f", copies to {self.copies_to}"
        return f", moves to {self.moves_to}" if self.moves_to else ""

    def __str__(self) -> str:
        """Return the range as messages name it."""
        return f"home range [{shown(self.first)}, {'end' if self.last is None else shown(self.last)})"


@dataclass(frozen=True, slots=True)
class JoinReplacement:
    """A join that takes the place of another: computes prepare it, and then the map has it there."""

    #: The version of the map in which computes begin to prepare it: it names the replacement.
    version: int
    #: The joins in canonical form.
    old: str
    new: str
    is_in_place: bool = False
    #: Why it has ended; empty while computes prepare it.
    ended: str = ""


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """What the operator decides. A map with a greater version replaces an earlier one.

    Raises:
        ClusterMapError: Its parts do not go together.
    """

    cluster: str
    version: int
    #: The text of all joins that every server installs.
    joins: str = ""
    #: In the order of their prefixes, each prefix once.
    placements: tuple[Placement, ...] = ()
    #: Disjoint, in key order.
    home_ranges: tuple[HomeRange, ...] = ()
    #: The one under way, or else the last one; not in texts.
    replacement: JoinReplacement | None = None

    def __post_init__(self) -> None:
        check_name("cluster", self.cluster)
        if not 0 <= self.version <= VERSION_MAX:
            raise ClusterMapError("version", f"{self.version} is not from 0 to {VERSION_MAX}")
        for one, other in pairwise(self.placements):
            if one.prefix >= other.prefix:
                raise ClusterMapError(
                    f"placement {shown(other.prefix)}", f"it does not come after {shown(one.prefix)}, as its order is"
                )
        for before, after in pairwise(self.home_ranges):
            if before.last is None or before.last > after.first:
                raise ClusterMapError(str(after), f"it does not come after {before}; each key has one home group")

    @property
    def version_after(self) -> int:
        """The version of the next map.

        Raises:
            ClusterMapError: This one has the greatest version.
        """
        if self.version >= VERSION_MAX:
            raise ClusterMapError(
                "version",
                f"{self.version} is the greatest one, so no map can follow: save the map by `pequod cluster map save`, "
                "stop all servers, delete the map where it is, and make it anew by `pequod cluster init --from`",
            )
        return self.version + 1

    def group_of(self, key: bytes) -> bytes:
        """Return the prefix that a key shares with the keys that are computed at the same server."""
        return grouping(self.placements).group_of(key)

    def is_group(self, prefix: bytes) -> bool:
        """Return whether all keys with a prefix, and no others, are one group."""
        return prefix.endswith(b"|") and self.group_of(prefix + b"x|") == prefix

    def read_spread_of(self, group: bytes) -> int:
        """Return the number of computes over which reads of a group are spread."""
        return grouping(self.placements).read_spread_of(group)

    def home_range_of(self, key: bytes) -> HomeRange | None:
        """Return the home range of a base key; None if no home group owns it.

        Cost:
            O(log n) for n home ranges.
        """
        at = bisect_right(self.home_ranges, key, key=lambda home: home.first) - 1
        if at < 0:
            return None
        home = self.home_ranges[at]
        return home if home.last is None or key < home.last else None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All that a server knows of its cluster, and tells clients.

    Raises:
        ClusterMapError: Two servers have one id.
    """

    map: ClusterMap
    #: In the order of their ids.
    servers: tuple[ServerEntry, ...] = ()

    def __post_init__(self) -> None:
        for one, other in pairwise(self.servers):
            if one.id >= other.id:
                raise ClusterMapError(
                    f"server {other.id}", "another server has this id" if one.id == other.id else "it is out of order"
                )

    @staticmethod
    def of(cluster_map: ClusterMap, servers: Iterable[ServerEntry]) -> ClusterState:
        """Return the state with servers that come in any order."""
        return ClusterState(cluster_map, tuple(sorted(servers, key=lambda server: server.id)))

    def homes_of(self, group: str) -> tuple[ServerEntry, ...]:
        """Return the homes of a group."""
        return tuple(server for server in self.servers if ServerRole.HOME in server.roles and server.group == group)

    def check_groups(self) -> None:
        """Check that each home range belongs to a group that has a home: where all servers are known beforehand.

        Raises:
            ClusterMapError: A group has no home.
        """
        for home in self.map.home_ranges:
            for group in filter(None, (home.group, home.moves_to, home.copies_to)):
                if not self.homes_of(group):
                    raise ClusterMapError(str(home), f"no server is a home of its group {group!r}")

    def check_addresses(self) -> None:
        """Check that each server has an address of its own: where no entry can be of a server that is gone.

        Raises:
            ClusterMapError: Two servers have one address.
        """
        known: dict[str, str] = {}
        for server in self.servers:
            other = known.setdefault(server.address, server.id)
            if other != server.id:
                raise ClusterMapError(f"server {server.id}, address", f"server {other} has {server.address} already")
