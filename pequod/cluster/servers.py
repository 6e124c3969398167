"""The servers of a cluster.

>>> ServerEntry("c1", "10.0.0.4:7744", frozenset({ServerRole.COMPUTE})).is_ready
True
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pequod.addresses import fault_of
from pequod.cluster.faults import check_name
from pequod.errors import ClusterMapError

#: With more, a server would get nearly all groups: then the others should go.
WEIGHT_MAX: Final = 1000.0


class ServerRole(StrEnum):
    """What a server does in a cluster. A server beside its own database that clients read does both."""

    #: It owns base ranges: clients write here, and computes follow it.
    HOME = "home"
    #: It answers reads.
    COMPUTE = "compute"


class ServerState(StrEnum):
    """Whether a server answers calls."""

    #: It does not answer reads yet.
    JOINING = "joining"
    READY = "ready"
    #: It is about to leave: it answers, but new reads go elsewhere.
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server, as the others know it.

    Raises:
        ClusterMapError: Something in it is not possible.
    """

    #: Names the server for longer than one life of its process.
    id: str
    #: HOST:PORT at which clients and servers reach it.
    address: str
    roles: frozenset[ServerRole] = frozenset({ServerRole.HOME, ServerRole.COMPUTE})
    #: The home group whose base data it has; empty for a server that is no home.
    group: str = ""
    #: Its share of the groups beside that of other computes.
    weight: float = 1.0
    #: Where it is, such as a rack; empty if nobody cares.
    zone: str = ""
    state: ServerState = ServerState.READY
    #: The version of the map whose joins and home ranges it has; 0 if that is not known. Not in texts.
    map_version: int = 0
    #: The version that names the replacement of a join that it has prepared last; 0: none. None: it is a server that
    #: prepares nothing. Not in texts.
    prepared: int | None = None

    def __post_init__(self) -> None:
        check_name("a server's id", self.id)
        place = f"server {self.id}"
        if fault := fault_of(self.address):
            raise ClusterMapError(f"{place}, address", fault)
        if not self.roles:
            raise ClusterMapError(f"{place}, roles", "there is none; name `home`, `compute`, or both")
        if ServerRole.HOME in self.roles:
            check_name(f"{place}, group", self.group)
        elif self.group:
            raise ClusterMapError(f"{place}, group", f"{self.group!r} is given, but only a home belongs to a group")
        # Also false for a weight that is no number.
        if not 0 < self.weight <= WEIGHT_MAX:
            raise ClusterMapError(f"{place}, weight", f"{self.weight:g} is not above 0 and at most {WEIGHT_MAX:g}")

    @property
    def is_ready(self) -> bool:
        """Whether new calls go there."""
        return self.state is ServerState.READY
