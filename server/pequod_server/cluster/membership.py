"""The cluster of the configuration: its coordinator, and what this server says of itself.

>>> coordinator_of("etcd:10.0.0.1:2379,10.0.0.2:2379/twip").place
'etcd at 10.0.0.1:2379, 10.0.0.2:2379, cluster twip'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc

from pequod.addresses import fault_of, is_unspecified
from pequod.cluster.map import ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.engine import Engine, JoinError
from pequod.errors import ClusterMapError, SettingError
from pequod_server.cluster.confirming import MapConfirmer, asking
from pequod_server.cluster.coordinator import ClusterCoordinator
from pequod_server.cluster.etcd_calls import EtcdAccess
from pequod_server.cluster.heard import hearing
from pequod_server.cluster.installing import MapJoins
from pequod_server.cluster.member import Member
from pequod_server.cluster.sources import MapSources
from pequod_server.cluster.static import StaticCoordinator, read_file
from pequod_server.cluster.through_servers import ServersFollowed
from pequod_server.cluster.workers_map import WorkersCoordinator
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.compute.store import SETTLE_S, PequodStore
from pequod_server.homes.rules import HomeRules
from pequod_server.setting_kinds import parse_addresses, parse_relays, table_names
from pequod_server.stores import backed_tables, peer_credentials
from pequod_server.worker import HOME_BACK_S, HOME_ID, Worker

_STATIC: Final = "static:"
_ETCD: Final = "etcd:"
_HINT: Final = "write static:FILE or etcd:HOST:PORT,HOST:PORT/NAME"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def coordinator_of(cluster: str, access: EtcdAccess | None = None) -> ClusterCoordinator:
    """Return the coordinator that a setting names.

    Args:
        access: What is shown to etcd.

    Raises:
        SettingError: The setting names none.
    """
    if cluster.startswith(_STATIC) and len(cluster) > len(_STATIC):
        return StaticCoordinator(Path(cluster.removeprefix(_STATIC)))
    if not cluster.startswith(_ETCD):
        raise SettingError("cluster", f"{cluster!r} is no coordinator; {_HINT}")
    addresses, _, name = cluster.removeprefix(_ETCD).partition("/")
    if _NAME.fullmatch(name) is None:
        raise SettingError("cluster", f"{cluster!r} does not end with the name of the cluster; {_HINT}")
    endpoints = [address.strip() for address in addresses.split(",")]
    for endpoint in endpoints:
        if fault := fault_of(endpoint):
            raise SettingError("cluster", f"{fault}; {_HINT}")
    from pequod_server.cluster.etcd import EtcdCoordinator  # noqa: PLC0415 - most servers have no etcd

    return EtcdCoordinator(endpoints, name, access)


def make_member(
    config: ServerConfig,
    engine: Engine,
    databases: Databases,
    groups: Sequence[HomeGroup],
    worker: Worker | None = None,
) -> Member | None:
    """Return the server as a member of the cluster of the settings, None without one.

    Args:
        groups: The databases of the settings.
        worker: Which worker it is, if it is one of several.

    Raises:
        SettingError: The settings do not go together, or a file for TLS cannot be read.
        ClusterMapError: The file of the cluster is not right, or does not have the server.
    """
    given = [name for name in ServerConfig.model_fields if name.startswith("cluster_") and _is_given(config, name)]
    if not config.cluster:
        if given:
            raise SettingError(given[0], "it needs a cluster: give cluster, such as static:cluster.toml")
        return None
    access = etcd_access(
        config.cluster_ca, config.cluster_certificate, config.cluster_key, config.cluster_user, config.cluster_password
    )
    entry, credentials_of_peers = first_entry(config), peer_credentials(config)
    coordinator = coordinator_of(config.cluster, access)
    followed = _followed(config, entry, coordinator, credentials_of_peers)
    if ServerRole.HOME in entry.roles and config.backing.startswith("pequod://"):
        reason = "a home of a cluster has a database; start a relay without `cluster`, and name it in cluster_relays"
        raise SettingError("backing", reason)
    if worker is not None:
        coordinator = WorkersCoordinator(Path(config.cluster.removeprefix(_STATIC)), worker.id)
    joins, settle_s = MapJoins(engine), SETTLE_S if worker is None else HOME_BACK_S
    local = groups[0] if groups and ServerRole.HOME in entry.roles else None

    def make_store(addresses: Sequence[str], tables: Sequence[bytes]) -> PequodStore:
        connect = credentials_of_peers.connect
        return PequodStore(addresses, tables, connect=connect, own_id=entry.id, may_lack=True, settle_s=settle_s)

    sources = MapSources(entry, databases, local, make_store, parse_relays(config.cluster_relays))

    async def take_in(state: ClusterState) -> None:
        if ServerRole.COMPUTE not in entry.roles:
            return
        await sources.take_in(state)
        try:
            joins.take_in(state.map)
        except JoinError as error:
            raise ClusterMapError(f"the joins of the map's version {state.map.version}", str(error)) from None

    takes_port = not config.cluster.startswith(_STATIC) and (config.cluster_address or config.listen).endswith(":0")
    tables: list[bytes] | None = None
    if groups and ServerRole.COMPUTE not in entry.roles:
        # Clients of such a home read and write nothing else; other keys would be in its memory alone.
        tables = [*backed_tables(groups[0].store), *table_names(config.peer_exports)]
    rules = HomeRules(entry, tables=tables, takes_all=worker is not None and worker.id == HOME_ID)
    confirmer = MapConfirmer(entry, asking(credentials_of_peers)) if config.cluster.startswith(_ETCD) else None
    return Member(
        coordinator,
        entry,
        take_in,
        rules=rules,
        takes_port=takes_port,
        confirmer=confirmer,
        followed=followed,
    )


def _followed(
    config: ServerConfig, entry: ServerEntry, coordinator: ClusterCoordinator, credentials: PeerCredentials
) -> ServersFollowed | None:
    if not (addresses := parse_addresses(config.cluster_follow)):
        return None
    if not config.cluster.startswith(_ETCD):
        raise SettingError("cluster_follow", "it is for a map in etcd; a map in a file is followed there")
    if ServerRole.HOME in entry.roles:
        reason = "a home watches etcd itself: it has to hear of moves before others go by them"
        raise SettingError("cluster_follow", f"{reason}; leave cluster_follow out, or say cluster_roles = compute")
    if entry.address in addresses:
        raise SettingError("cluster_follow", f"{entry.address} is this server itself; take it out")
    from pequod_server.cluster.etcd import EtcdCoordinator  # noqa: PLC0415 - most servers have no etcd

    assert isinstance(coordinator, EtcdCoordinator)
    cluster = config.cluster.rpartition("/")[2]
    return ServersFollowed(coordinator, cluster, addresses, entry.id, hearing(credentials, entry.id))


def first_entry(config: ServerConfig) -> ServerEntry:
    """Return what the server says of itself; where it listens at a free port, the port is 0 and known later.

    Raises:
        SettingError: The settings do not go together.
        ClusterMapError: The file of the cluster is not right, or does not have the server.
    """
    address = config.cluster_address or config.listen
    if config.cluster.startswith(_STATIC) and config.cluster_id:
        return _entry_of_file(config, address)
    if not config.cluster_address and is_unspecified(config.listen):
        raise SettingError("cluster_address", f"others cannot reach {config.listen}; give the address of this machine")
    if config.cluster.startswith(_STATIC):
        return _entry_of_file(config, address)
    roles = _roles(config)
    if ServerRole.HOME in roles and not config.cluster_group:
        raise SettingError("cluster_group", "a home belongs to a home group; give its name")
    host, _, port = address.rpartition(":")
    if port == "0" and not config.cluster_id:
        raise SettingError("cluster_id", f"{address} is another address after each start; give the server a name")
    try:
        return ServerEntry(
            config.cluster_id or id_of(address),
            # The port is told once it is known.
            f"{host}:1" if port == "0" else address,
            roles,
            config.cluster_group,
            config.cluster_weight,
            config.cluster_zone,
        )
    except ClusterMapError as error:
        raise SettingError("cluster", str(error)) from None


def id_of(address: str) -> str:
    """Return the id of a server that is given none.

    >>> id_of("10.0.0.4:7744"), id_of("[fd00::4]:7744")
    ('10.0.0.4-7744', 'fd00-4-7744')
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "-", address).strip("-")[:63]


def _entry_of_file(config: ServerConfig, address: str) -> ServerEntry:
    path = Path(config.cluster.removeprefix(_STATIC))
    servers = read_file(path).servers
    for name in ("cluster_roles", "cluster_group", "cluster_weight", "cluster_zone"):
        if _is_given(config, name):
            raise SettingError(name, f"{path} says it; take it out here")
    found = [
        server
        for server in servers
        if (server.id == config.cluster_id if config.cluster_id else server.address == address)
    ]
    if not found:
        hint = "give cluster_id, or put the server into the file"
        who = f"the id {config.cluster_id}" if config.cluster_id else f"the address {address}"
        raise ClusterMapError(f"{path}, servers", f"none has {who}; {hint}")
    return found[0]


def _roles(config: ServerConfig) -> frozenset[ServerRole]:
    names = config.cluster_roles.split()
    if not names:
        return frozenset({ServerRole.HOME, ServerRole.COMPUTE} if config.backing else {ServerRole.COMPUTE})
    return frozenset(map(ServerRole, names))


def _is_given(config: ServerConfig, name: str) -> bool:
    value: object = getattr(config, name)
    return bool(value != ServerConfig.model_fields[name].default)


def etcd_access(
    cluster_ca: Path | None = None,
    cluster_certificate: Path | None = None,
    cluster_key: Path | None = None,
    cluster_user: str = "",
    cluster_password: Path | None = None,
) -> EtcdAccess:
    """Return what is shown to etcd.

    Raises:
        SettingError: A file cannot be read, or one is missing.
    """
    if bool(cluster_user) != bool(cluster_password):
        names = ("cluster_user", "cluster_password")
        given, missing = names if cluster_user else reversed(names)
        raise SettingError(missing, f"it goes with {given}; give both, or neither")
    password = (_read("cluster_password", cluster_password) or b"").decode("utf-8", "replace").strip()
    if not (cluster_certificate or cluster_key or cluster_ca):
        return EtcdAccess(None, cluster_user, password)
    if bool(cluster_certificate) != bool(cluster_key):
        names = ("cluster_certificate", "cluster_key")
        given, missing = names if cluster_certificate else reversed(names)
        raise SettingError(missing, f"it goes with {given}; give both, or neither")
    tls = grpc.ssl_channel_credentials(
        _read("cluster_ca", cluster_ca),
        _read("cluster_key", cluster_key),
        _read("cluster_certificate", cluster_certificate),
    )
    return EtcdAccess(tls, cluster_user, password)


def _read(setting: str, path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise SettingError(setting, f"cannot read it: {error}") from error
