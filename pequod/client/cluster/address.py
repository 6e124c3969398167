"""The target of a cluster: the addresses of some of its servers, from any of which a client learns the others.

>>> ClusterTarget.parse("pequod+cluster://10.0.0.1:7744,10.0.0.2:7744?server=c1")
ClusterTarget(addresses=('10.0.0.1:7744', '10.0.0.2:7744'), server='c1', zone='')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from pequod.addresses import fault_of
from pequod.errors import SettingError

SCHEME: Final = "pequod+cluster://"


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Some servers of a cluster."""

    addresses: tuple[str, ...]
    #: The id of the server that calls about a server go to, such as statistics; empty: any.
    server: str = ""
    #: Whose computes reads go to while one is there; empty: those of all zones.
    zone: str = ""

    @staticmethod
    def is_one(target: str) -> bool:
        """Return whether a target is that of a cluster."""
        return target.startswith(SCHEME)

    @staticmethod
    def parse(target: str) -> ClusterTarget:
        """Return the cluster that a target names.

        Raises:
            SettingError: It names none.
        """
        names, _, query = target.removeprefix(SCHEME).partition("?")
        addresses = tuple(address.strip() for address in names.rstrip("/").split(","))
        for address in addresses:
            if fault := fault_of(address):
                raise SettingError("target", fault)
        options = dict(parse_qsl(query, keep_blank_values=True))
        server, zone = options.pop("server", ""), options.pop("zone", "")
        if options:
            raise SettingError("target", f"there is no option {min(options)!r}; there are `server` and `zone`")
        return ClusterTarget(addresses, server, zone)
