"""Where servers find each other and agree on a map: the protocol of coordinators.

    operator --- put_map ---> coordinator ---- follow ---> servers ---> their clients
    server ----- register -->   static: a file that the operator copies to the servers
                                etcd: keys with leases, changed by compare-and-swap

A coordinator that does not answer stops nothing: its servers go on with the last state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerState

#: A server that gives no sign of life for this long is gone for the others.
LEASE_S: Final = 6
#: Metadata of FollowCluster by which a server says that it follows in place of the coordinator: it names itself.
FOLLOWS: Final = "pequod-follows"


class Remains(NamedTuple):
    """The map and the servers that a coordinator still has, which may have lost some."""

    #: None: there is none, or none that is right.
    map: ClusterMap | None
    servers: tuple[ServerEntry, ...]


class Glance(NamedTuple):
    """The version of the map, and the entries of a few servers."""

    #: 0: there is none, or it is not right.
    map_version: int
    #: In the order of the ids that were asked for; None: it has no entry.
    servers: tuple[ServerEntry | None, ...]


class ClusterCoordinator(Protocol):
    """Keeps the map of one cluster, and knows its servers."""

    @property
    def place(self) -> str:
        """Where the map is, for people."""
        ...

    async def read(self) -> ClusterState:
        """Return the present state.

        Raises:
            CoordinatorUnavailableError: It does not answer.
            ClusterMapError: There is no map, or it is not right.
        """
        ...

    def follow(self) -> AsyncIterator[ClusterState]:
        """Yield the state as it is now, and again after changes; breaks heal by themselves.

        A map that is not there, or is not right, is logged and waited for.
        """
        ...

    async def put_map(self, changed: ClusterMap) -> None:
        """Put a map in the place of the one whose version is lower by one; version 1 is the first map.

        Raises:
            MapChangedError: The present map has another version.
            MapFixedError: The map cannot be changed by a server.
            CoordinatorUnavailableError: It does not answer; the text says whether the map may have been changed.
        """
        ...

    async def remains(self) -> Remains:
        """Return what there is, also where there is no map, or none that is right.

        Raises:
            CoordinatorUnavailableError: It does not answer.
        """
        ...

    async def restore_map(self, kept: ClusterMap) -> None:
        """Put a map in the place of any earlier one, or where there is none, or none that is right.

        Raises:
            MapChangedError: The present map is as late, or later.
            MapFixedError, CoordinatorUnavailableError: As `put_map`.
        """
        ...

    async def register(self, entry: ServerEntry) -> None:
        """Show a server to the others, from now on and until `unregister`; again with what has changed of it.

        Returns once the others can see it.

        Raises:
            ClusterMapError: It cannot be shown like this, for instance since another server has its id.
        """
        ...

    async def ask_state(self, server_id: str, state: ServerState) -> None:
        """Have a server be ready, or draining, until it is started again; it follows what is said of it here.

        Raises:
            ClusterMapError: There is no such server.
            MapFixedError, CoordinatorUnavailableError: As `put_map`.
        """
        ...

    async def ask_weight(self, server_id: str, weight: float) -> None:
        """Have a compute take another share of the groups, until it is started again; as `ask_state`.

        Raises:
            ClusterMapError: There is no such server, or the weight is not possible.
            MapFixedError, CoordinatorUnavailableError: As `put_map`.
        """
        ...

    def reload(self) -> None:
        """Look at once for what is new, where that is not told."""
        ...

    async def unregister(self) -> None:
        """Show the server no more. If the coordinator does not answer, the server's lease ends by itself."""
        ...

    async def close(self) -> None:
        """End following, and close connections."""
        ...
