"""The state of a cluster as messages, both ways."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.grouping import LEVEL, READ_SPREAD
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, JoinReplacement, Placement
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError


def map_of(message: pb.ClusterMap) -> ClusterMap:
    """Return the map in a message.

    Raises:
        ClusterMapError: It is no possible map.
    """
    return ClusterMap(
        message.cluster,
        message.version,
        message.joins,
        tuple(
            Placement(
                placement.prefix,
                placement.level if placement.HasField("level") else LEVEL,
                placement.read_spread or READ_SPREAD,
            )
            for placement in message.placements
        ),
        tuple(
            HomeRange(
                home.first,
                home.last or (b"" if home.HasField("last") else None),
                home.group,
                home.moves_to,
                home.copies_to,
                home.move,
            )
            for home in message.home_ranges
        ),
        _replacement_of(message.replacement) if message.HasField("replacement") else None,
    )


def _replacement_of(message: pb.ClusterReplacement) -> JoinReplacement:
    return JoinReplacement(message.version, message.old, message.new, message.in_place, message.ended)


def _message_of_replacement(one: JoinReplacement) -> pb.ClusterReplacement:
    return pb.ClusterReplacement(
        version=one.version, old=one.old, new=one.new, in_place=one.is_in_place, ended=one.ended
    )


def message_of_map(cluster_map: ClusterMap) -> pb.ClusterMap:
    """Return a map as a message."""
    return pb.ClusterMap(
        cluster=cluster_map.cluster,
        version=cluster_map.version,
        joins=cluster_map.joins,
        placements=[
            pb.ClusterPlacement(prefix=one.prefix, level=one.level, read_spread=one.read_spread)
            for one in cluster_map.placements
        ],
        home_ranges=[
            pb.ClusterHomeRange(
                first=one.first,
                last=one.last,
                group=one.group,
                moves_to=one.moves_to,
                copies_to=one.copies_to,
                move=one.move,
            )
            for one in cluster_map.home_ranges
        ],
        replacement=None if cluster_map.replacement is None else _message_of_replacement(cluster_map.replacement),
    )


def server_of(message: pb.ClusterServer) -> ServerEntry:
    """Return the server in a message.

    Roles that are not known here are left out: a newer server may have more of them.

    Raises:
        ClusterMapError: It is no possible server.
    """
    known = frozenset(ServerRole(role) for role in message.roles if role in set(ServerRole))
    if message.state not in set(ServerState):
        raise ClusterMapError(f"server {message.id}, state", f"{message.state!r} is no state")
    return ServerEntry(
        message.id,
        message.address,
        known,
        message.group,
        message.weight if message.HasField("weight") else 1.0,
        message.zone,
        ServerState(message.state),
        message.map_version,
        message.prepared if message.HasField("prepared") else None,
    )


def message_of_server(server: ServerEntry) -> pb.ClusterServer:
    """Return a server as a message."""
    return pb.ClusterServer(
        id=server.id,
        address=server.address,
        roles=sorted(server.roles),
        group=server.group,
        weight=server.weight,
        zone=server.zone,
        state=server.state,
        map_version=server.map_version,
        prepared=server.prepared,
    )


def state_of(message: pb.FollowClusterReply) -> ClusterState:
    """Return the state in a reply.

    Raises:
        ClusterMapError: It is no possible state.
    """
    return ClusterState.of(map_of(message.map), map(server_of, message.servers))


def message_of_difference(before: ClusterState, after: ClusterState) -> pb.FollowClusterReply:
    """Return what has changed from one state to another as a reply; see `state_after`.

    Cost:
        0.1 us a server that has not changed.
    """
    known = {server.id: server for server in before.servers}
    changed = [server for server in after.servers if known.pop(server.id, None) != server]
    return pb.FollowClusterReply(
        map=None if after.map == before.map else message_of_map(after.map),
        servers=map(message_of_server, changed),
        is_difference=True,
        gone=known,
    )


def state_after(before: ClusterState | None, message: pb.FollowClusterReply) -> ClusterState:
    """Return the state that a reply leads to: the whole one, or a difference from the one before.

    Args:
        before: None for the first reply.

    Raises:
        ClusterMapError: It is no possible state.
    """
    if before is None or not message.is_difference:
        return state_of(message)
    servers = {server.id: server for server in before.servers}
    for gone in message.gone:
        servers.pop(gone, None)
    servers |= {server.id: server for server in map(server_of, message.servers)}
    return ClusterState.of(map_of(message.map) if message.HasField("map") else before.map, servers.values())


def message_of_state(state: ClusterState, header: pb.Header | None = None) -> pb.FollowClusterReply:
    """Return a state as a reply."""
    return pb.FollowClusterReply(
        header=header, map=message_of_map(state.map), servers=map(message_of_server, state.servers)
    )
