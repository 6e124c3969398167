"""How the settings of one server are shared out among its workers, and which of them cannot be.

    settings --> w0: home and compute, with what is behind the server      half of memory_limit
                 w1, w2, ..: computes of its base data                      the other half, in equal parts
             --> the map that all of them go by: joins, home ranges, doors

One home, since answers are then of one moment: base data of several homes have none in common. It computes as well,
so that a call that no other worker can answer has a place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.engine import Engine, JoinInfo
from pequod.errors import SettingError
from pequod_server.access.access_file import read_rules
from pequod_server.config import ServerConfig
from pequod_server.joins import install_joins
from pequod_server.memory.admission import messages_bytes_max
from pequod_server.memory.keeper import MemoryKeeper, limit_bytes
from pequod_server.setting_kinds import MEMORY_LIMIT_MIN, parse_memory_limit
from pequod_server.stores import backed_tables, make_store

#: The home group of the workers' home.
GROUP: Final = "workers"
#: The share of the memory that is the home's, which has all base data where no database has them.
_HOME_SHARE: Final = 1 / 2
#: Settings of what is behind the server: the home's alone.
_OF_HOME: Final = (
    *("backing", "backing_mapping", "backing_tables", "backing_token", "backing_ca", "backing_mode", "backing_feed"),
    *("backing_feed_name", "data", "fsync", "snapshot_file", "snapshot_folder"),
    *("snapshot_every_s", "snapshot_keep", "http", "http_origins"),
    *("console_views", "console_lakes"),
)
#: Settings that workers have in the map, or that are the supervisor's alone.
_OF_NONE: Final = ("joins", "join_files", "workers", "worker_port")


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """One worker before it has a place."""

    id: str
    is_home: bool
    config: ServerConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """The workers of a server."""

    #: The home is the first one.
    workers: tuple[PlannedWorker, ...]
    #: The text of the joins that every worker installs.
    joins: str
    #: The tables of base data that every worker computes from.
    tables: tuple[bytes, ...]
    #: Whether base data outlive the home's process.
    is_lasting: bool

    def state(self, doors: Mapping[str, str]) -> ClusterState:
        """Return the map of the workers.

        Args:
            doors: Where each worker is reached by the others.
        """
        ranges = tuple(HomeRange(table + b"|", table + b"}", GROUP) for table in sorted(self.tables))
        both, compute = frozenset({ServerRole.HOME, ServerRole.COMPUTE}), frozenset({ServerRole.COMPUTE})
        entries = [
            ServerEntry(one.id, doors[one.id], both if one.is_home else compute, GROUP if one.is_home else "")
            for one in self.workers
        ]
        return ClusterState.of(ClusterMap(GROUP, 1, self.joins, home_ranges=ranges), entries)


def worker_count(config: ServerConfig) -> int:
    """Return how many workers the settings ask for."""
    return len(os.sched_getaffinity(0)) if config.workers == "auto" else int(config.workers)


def refuse_unshared(config: ServerConfig) -> None:
    """Pass if the settings go with their number of workers.

    Raises:
        SettingError: One of them is for a server that is one process, or for one that is not.
    """
    if worker_count(config) == 1:
        if config.worker_port:
            raise SettingError("worker_port", "it is of one of several workers; give workers, or leave it out")
        if config.worker_spread > 1:
            raise SettingError("worker_spread", "it is of several workers; give workers, or leave it out")
        return
    if config.cluster:
        raise _apart("cluster", "a server of a cluster is one process: run one for each core, or leave cluster out")
    if config.backing.startswith("pequod://"):
        raise _apart("backing", "the base data are those of other servers; run one server for each core")
    if config.backing_mode == "look-aside":
        raise _apart("backing_mode", "workers follow the changes of a database, which look-aside does not")
    if config.peer_exports:
        raise _apart("peer_exports", "exported tables are for computes of their own; leave peer_exports out")
    if config.access_file is not None:
        counted = [name for name, role in read_rules(config.access_file).roles.items() if role.quotas is not None]
        if counted:
            raise _apart("access_file", f"each would count by itself; take the quotas of role {counted[0]} out")


def _apart(other: str, reason: str) -> SettingError:
    """Return why another setting does not go with several workers."""
    return SettingError("workers", f"several do not go with {other}: {reason}")


def check_workers(config: ServerConfig) -> None:
    """Pass if a server with these settings would have its workers, as far as that is seen without a start.

    Raises:
        SettingError: It would not.
    """
    refuse_unshared(config)
    if (count := worker_count(config)) > 1:
        _roomy_shares(config, count, is_even=bool(config.backing))


def plan_of(config: ServerConfig, *, joins_from: str = "joins") -> Plan:
    """Return the plan of a server's workers.

    Requires:
        `refuse_unshared` has passed them.

    Raises:
        SettingError: A part of the settings is not right.
        ConfigError: A join cannot be installed.
    """
    store = make_store(config)
    engine = Engine()
    joins = install_joins(engine, config, joins_from=joins_from)
    shared = _base_tables(joins) if store is None else backed_tables(store)
    shares = _roomy_shares(config, worker_count(config), is_even=store is not None)
    workers = tuple(
        PlannedWorker(f"w{number}", number == 0, _config_of(config, number == 0, share))
        for number, share in enumerate(shares)
    )
    text = "".join(f"{join.spec};\n" for join in joins)
    is_lasting = store is not None or any((config.data, config.snapshot_file, config.snapshot_folder))
    return Plan(workers, text, tuple(dict.fromkeys(shared)), is_lasting)


def memory_shares(config: ServerConfig, count: int, *, is_even: bool) -> list[str]:
    """Return the memory_limit of each worker, the home's first.

    Raises:
        SettingError: There is too little for each of them.
    """
    if parse_memory_limit(config.memory_limit) is None:
        return ["none"] * count
    whole = limit_bytes(config.memory_limit)
    home = int(whole / count if is_even else whole * _HOME_SHARE)
    other = (whole - home) // max(count - 1, 1)
    if min(home, other) < MEMORY_LIMIT_MIN:
        raise SettingError("memory_limit", f"{whole} bytes are too little for {count} workers")
    return [str(home), *[str(other)] * (count - 1)]


def _roomy_shares(config: ServerConfig, count: int, *, is_even: bool) -> list[str]:
    """Return `memory_shares` that have room for what a worker takes: as much as this process does.

    Raises:
        SettingError: They have not, or see `memory_shares`.
    """
    shares = memory_shares(config, count, is_even=is_even)
    least = min(shares, key=limit_bytes)
    one = config.model_copy(update={"memory_limit": least})
    try:
        MemoryKeeper(Engine(), limit_bytes(least), messages_bytes=messages_bytes_max(one))
    except SettingError as error:
        raise SettingError(error.setting, f"{error.reason}, for each of {count} workers") from None
    return shares


def _config_of(config: ServerConfig, is_home: bool, memory: str) -> ServerConfig:  # noqa: FBT001 - of this file
    fields = ServerConfig.model_fields
    gone = _OF_NONE if is_home else (*_OF_NONE, *_OF_HOME)
    changed: dict[str, Any] = {name: fields[name].get_default() for name in gone}
    return config.model_copy(update={**changed, "memory_limit": memory})


def _base_tables(joins: Sequence[JoinInfo]) -> Iterable[bytes]:
    """Return the tables that joins read and none computes."""
    computed = {join.spec.output.table for join in joins}
    read = (source.pattern.table for join in joins for source in join.spec.sources)
    return [table for table in read if table not in computed]


def place_of(folder: Path) -> str:
    """Return the setting `cluster` of workers whose map is in a folder."""
    return f"static:{map_file(folder)}"


def map_file(folder: Path) -> Path:
    """Return the file of the workers' map."""
    return folder / "map.toml"
