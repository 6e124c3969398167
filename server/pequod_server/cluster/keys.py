"""The keys of a cluster in etcd, and the state that they say; a change parses the value that changed, and no other.

/pequod/twip/map           {"version": "5", ...}     ClusterMap
/pequod/twip/servers/c1    {"id": "c1", ...}         ServerEntry       two changes of c1 are one new entry
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from google.protobuf import json_format
from pequod_proto import etcd_pb2 as etcd
from pequod_proto import pequod_pb2 as pb

from pequod.cluster.lost import check_not_lost
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.messages import map_of, message_of_map, message_of_server, server_of
from pequod.cluster.servers import ServerEntry
from pequod.errors import ClusterMapError
from pequod_server.cluster.coordinator import Remains

log = logging.getLogger("pequod.server")


class EtcdKeys:
    """The map and the servers that the keys of a cluster say.

    Args:
        root: What all of them start with, with a slash at the end.
        place: Where they are, for people.
        pairs: The keys that there are.

    Invariants:
        1. ``_servers`` are the entries that can be read, by their keys.
        2. ``_map`` is what ``_value`` says; None: nothing, or it was not asked for yet.
    """

    def __init__(self, root: bytes, place: str, pairs: Iterable[etcd.KeyValue] = ()) -> None:
        self.map_key = root + b"map"
        self.servers_key = server_key(root, "")
        self._place = place
        #: The text of the map: of versions that come together, only the last one is parsed.
        self._value: bytes | None = None
        self._map: ClusterMap | ClusterMapError | None = None
        self._servers: dict[bytes, ServerEntry] = {}
        self.take_all(pairs)

    def take_all(self, pairs: Iterable[etcd.KeyValue]) -> None:
        """Take in all keys, and forget those that are not there any more."""
        self._value, self._map, self._servers = None, None, {}
        for pair in pairs:
            self._put(pair)

    def take(self, event: etcd.Event) -> bool:
        """Take in a change; return whether it is one of the map."""
        if event.kind != etcd.Event.DELETE:
            self._put(event.kv)
        elif event.kv.key == self.map_key:
            self._value = self._map = None
        else:
            self._servers.pop(event.kv.key, None)
        return bool(event.kv.key == self.map_key)

    def _put(self, pair: etcd.KeyValue) -> None:
        if pair.key == self.map_key:
            self._value, self._map = pair.value, None
        elif pair.key.startswith(self.servers_key):
            try:
                self._servers[pair.key] = read_server(pair.value)
            except ClusterMapError as error:
                # One that is newer, or broken: the others are there all the same.
                self._servers.pop(pair.key, None)
                extra = {"key": pair.key.decode(), "reason": str(error)}
                log.warning("a server of the cluster is not known", extra=extra)

    def _read_map(self) -> ClusterMap | ClusterMapError | None:
        """Return the map, or its fault; None without a map."""
        if self._map is None and self._value is not None:
            self._map = self._map_of(self._value)
        return self._map

    def _map_of(self, value: bytes) -> ClusterMap | ClusterMapError:
        message = pb.ClusterMap()
        try:
            _parse(value, message)
            return map_of(message)
        except ClusterMapError as error:
            place = f"{self.map_key.decode()} at {self._place}"
            return ClusterMapError(place, f"{error}; put a right map there, with a greater version")

    def server(self, server_id: str) -> ServerEntry | None:
        """Return the entry of a server, None if it has none."""
        return self._servers.get(self.servers_key + server_id.encode())

    def state(self) -> ClusterState:
        """Return the state that the keys say.

        Raises:
            ClusterMapError: There is no map, or it is not right.

        Cost:
            0.2 us a server.
        """
        known = self._read_map()
        if isinstance(known, ClusterMapError):
            raise known
        if known is None:
            check_not_lost(self._place, 0, self._servers.values())
            raise ClusterMapError(self._place, "there is no map; `pequod cluster init` makes one")
        return ClusterState.of(known, self._servers.values())

    def remains(self) -> Remains:
        """Return what there is, whatever is wrong with the map."""
        known = self._read_map()
        servers = sorted(self._servers.values(), key=lambda one: one.id)
        return Remains(known if isinstance(known, ClusterMap) else None, tuple(servers))

    def __len__(self) -> int:
        """Return the number of servers."""
        return len(self._servers)

    def version(self) -> int:
        """Return the version of the map; 0 if there is none.

        Raises:
            ClusterMapError: It is not right.
        """
        known = self._read_map()
        if isinstance(known, ClusterMapError):
            raise known
        return self.map_version

    @property
    def map_version(self) -> int:
        """The version of the map; 0 if there is none, or it is not right."""
        known = self._read_map()
        return known.version if isinstance(known, ClusterMap) else 0


def server_key(root: bytes, server_id: str) -> bytes:
    """Return the key of a server's entry."""
    return root + b"servers/" + server_id.encode()


def written(value: ClusterMap | ServerEntry) -> bytes:
    """Return a map, or a server, as the value of its key."""
    message = message_of_map(value) if isinstance(value, ClusterMap) else message_of_server(value)
    return json_format.MessageToJson(message, preserving_proto_field_name=True, ensure_ascii=False).encode()


def read_map(value: bytes) -> ClusterMap:
    """Return the map in the value of its key.

    Raises:
        ClusterMapError: It cannot be read.
    """
    message = pb.ClusterMap()
    _parse(value, message)
    return map_of(message)


def read_server(value: bytes) -> ServerEntry:
    """Return the server in the value of its key.

    Raises:
        ClusterMapError: It cannot be read.
    """
    message = pb.ClusterServer()
    _parse(value, message)
    return server_of(message)


def _parse(value: bytes, message: pb.ClusterMap | pb.ClusterServer) -> None:
    """Read JSON; what is not known here is of a newer version, and left out."""
    try:
        json_format.Parse(value.decode(), message, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ClusterMapError("its value", f"it is not readable: {error}") from None
