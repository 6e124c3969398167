"""A coordinator that has lost the latest map: an older backup was restored, or the map was made anew.

    etcd       version 3                       what operators would change
    servers    c1 5, c2 5, h1 5                what they go by, and clients with them

Servers that are there keep the later map: its version never goes back. It is put back from one of them, or from a file.

>>> from pequod.cluster.servers import ServerEntry
>>> check_not_lost("etcd", 5, [ServerEntry("c1", "10.0.0.4:7744", group="a", map_version=5)])
>>> latest_version(3, [ServerEntry("c1", "10.0.0.4:7744", group="a", map_version=5)])
5
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pequod.cluster.servers import ServerEntry
from pequod.errors import ClusterMapError

_SHOWN: Final = 5
#: What puts the map back; `address` is that of a server which has it.
HINT: Final = (
    "an older backup was restored, or the map was made anew: save the servers' map by `pequod cluster map save FILE "
    "--target {address}`, and put it back by `pequod cluster map restore PLACE FILE`"
)


def latest_version(version: int, servers: Iterable[ServerEntry]) -> int:
    """Return the greatest version of a map: that of the coordinator, or of a server.

    Args:
        version: Of the coordinator's map; 0 if it has none.
    """
    return max((version, *(server.map_version for server in servers)))


def check_not_lost(place: str, version: int, servers: Iterable[ServerEntry]) -> None:
    """Check that no server goes by a later map than the coordinator's.

    Args:
        place: Where the coordinator's map is, for people.
        version: Of the coordinator's map; 0 if it has none.

    Raises:
        ClusterMapError: One does; the reason says what to do.
    """
    later = sorted((one for one in servers if one.map_version > version), key=lambda one: (-one.map_version, one.id))
    if not later:
        return
    ids = ", ".join(one.id for one in later[:_SHOWN]) + (" and more" if len(later) > _SHOWN else "")
    has = f"version {version} of the map is there" if version else "there is no map"
    hint = HINT.format(address=later[0].address)
    raise ClusterMapError(place, f"{has}, and servers go by version {later[0].map_version} ({ids}); {hint}")
