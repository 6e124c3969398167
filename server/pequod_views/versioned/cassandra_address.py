"""Where a keyspace of Cassandra is.

>>> CassandraAddress.of("cassandra://ann:secret@one,two:9043/tickets").hosts
('one', 'two')
>>> CassandraAddress.of("cassandra://ann:secret@one,two:9043/tickets").shown
'cassandra://one,two:9043/tickets'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import unquote

from pequod_views.versioned.replicas import CASSANDRA, ReplicaRefusedError, shown

_PORT: Final = 9042
_PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(
    r"cassandra://(?:(?P<user>[^:@/]+):(?P<password>[^@/]*)@)?"
    r"(?P<hosts>[\w.-]+(?:,[\w.-]+)*)(?::(?P<port>[0-9]+))?/(?P<keyspace>[A-Za-z]\w*)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """Some hosts of a cluster, which tell the others, and a keyspace."""

    hosts: tuple[str, ...]
    #: The same at all hosts.
    port: int
    keyspace: str
    #: Empty: the cluster asks for none.
    user: str
    password: str = field(repr=False)
    #: The address without its password, for messages.
    shown: str

    @classmethod
    def of(cls, address: str) -> Self:
        """Return what an address says.

        Raises:
            ReplicaRefusedError: It is malformed.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None:
            form = f"it is {CASSANDRA}HOST,HOST:PORT/KEYSPACE, with USER:PASSWORD@ before the hosts, or without"
            raise ReplicaRefusedError(shown(address), form)
        port = int(found["port"] or _PORT)
        if not 0 < port <= _PORT_MAX:
            raise ReplicaRefusedError(shown(address), f"there is no port {port}")
        user, password = unquote(found["user"] or ""), unquote(found["password"] or "")
        hosts = tuple(dict.fromkeys(found["hosts"].split(",")))
        return cls(hosts, port, found["keyspace"], user, password, shown(address))
