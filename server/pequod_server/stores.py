"""The database of the configuration: which it is, and which tables of the engine it owns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pequod_installed.names import how_to_install

from pequod.addresses import fault_of
from pequod.engine import Engine, Search
from pequod.errors import SettingError
from pequod_server.backing import BackingStore, Mapping, MappingError, SqliteStore, parse_mappings
from pequod_server.backing.searches import can_search
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.database.gate import Gates
from pequod_server.database.loader import Loader
from pequod_server.database.whole_tables import WholeTables
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.compute.store import PequodStore
from pequod_server.memory.keeper import limit_bytes
from pequod_server.setting_kinds import table_names

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk

_SQLITE = "sqlite:"
_LAKE = "lake:"
_HOMES = "pequod://"
_POSTGRES = ("postgresql://", "postgres://")


def make_store(config: ServerConfig) -> BackingStore | None:
    """Return the database that the settings name; None if they name none, or the application keeps the cache itself.

    Raises:
        SettingError: The settings do not go together, or the mapping is not right.
        ImportError: The database needs a package that is not installed.
    """
    if config.data is not None and config.backing:
        raise SettingError("data", "the database behind the server keeps the base data: give data or backing")
    if not config.backing:
        if config.backing_mapping is not None:
            raise SettingError("backing_mapping", "it needs a database: give backing, such as sqlite:PATH")
        return None
    if config.backing_mode == "look-aside":
        return None
    if config.backing.startswith(_HOMES):
        return _homes(config)
    mappings = _mappings(config)
    if config.backing.startswith(_SQLITE):
        store = SqliteStore(config.backing.removeprefix(_SQLITE), mappings)
        store.request_ids.keep_s = config.request_ids_keep_s
        return store
    if config.backing.startswith(_LAKE):
        if find_spec("duckdb") is None:
            raise ImportError(f"a lake needs duckdb: {how_to_install('lake')}")
        from pequod_server.backing.lake.store import LakeStore  # noqa: PLC0415 - needs the extra

        return LakeStore(config.backing.removeprefix(_LAKE), mappings)
    if not config.backing.startswith(_POSTGRES):
        raise SettingError(
            "backing",
            "it is no database; write sqlite:PATH, lake:DIR, postgresql://USER@HOST/NAME or pequod://HOST:PORT",
        )
    for package in ("asyncpg", "psycopg2"):
        if find_spec(package) is None:
            raise ImportError(f"PostgreSQL needs {package}: {how_to_install('backing')}")
    from pequod_server.backing.postgres.store import PostgresStore  # noqa: PLC0415 - needs the extra

    try:
        return PostgresStore(
            config.backing,
            mappings,
            mode=config.backing_feed,
            feed_name=config.backing_feed_name,
            held_bytes_max=config.backing_bytes_max,
            keep_s=config.request_ids_keep_s,
        )
    except MappingError as error:
        raise SettingError("backing_feed_name", error.reason) from error


def make_disk(config: ServerConfig, engine: Engine) -> Disk | None:
    """Return the disk that keeps what an engine holds; None if the settings name no folder.

    Raises:
        SettingError: The settings do not go together.
        ImportError: It needs a package that is not installed.
    """
    if config.data is None:
        if config.fsync != ServerConfig.model_fields["fsync"].default:
            raise SettingError(
                "fsync", f"no disk has what is written; give data, the folder, or leave {config.fsync} out"
            )
        return None
    for name in ("snapshot_file", "snapshot_folder", "snapshot_every_s"):
        if getattr(config, name):
            reason = f"it has all that a snapshot has, up to the last write: give data or {name}"
            raise SettingError("data", f"{reason}; `pequod data backup` makes copies of it")
    if find_spec("rocksdict") is None:
        raise ImportError(f"a folder of data needs rocksdict: {how_to_install('server')}")
    from pequod_server.data.disk import Disk  # noqa: PLC0415 - needs the extra
    from pequod_server.data.library import caches_within  # noqa: PLC0415 - needs the extra

    return Disk(config.data, engine, config.fsync, caches_within(limit_bytes(config.memory_limit)))


def backed_tables(store: BackingStore) -> list[bytes]:
    """Return the names of the tables that a database owns."""
    if isinstance(store, PequodStore):
        return list(store.tables)
    return [name for mapping in store.mappings for name in mapping.tables]


def searching(groups: Sequence[HomeGroup]) -> Callable[[Search], bool]:
    """Return what tells an engine whether its databases can be asked by fields; see `can_search`.

    Where several share tables, none of them has all rows with a field.
    """
    return partial(can_search, next((group.store for group in groups if group.ranges is None), None))


def make_databases(config: ServerConfig, engine: Engine, groups: Sequence[HomeGroup]) -> Databases:
    """Return what keeps an engine in step with databases, as the settings say."""

    def make(engine: Engine, store: BackingStore, *, name: str, gates: Gates) -> Loader:
        return Loader(
            engine,
            store,
            name=name,
            gates=gates,
            # Writes of keys that the homes of the map own go to these homes.
            is_write_through=config.backing_mode == "write-through" or bool(config.cluster and name),
            stale_max_s=config.backing_stale_max_s,
        )

    return Databases(engine, groups, make, WholeTables(engine, table_names(config.backing_whole_tables)))


def _homes(config: ServerConfig) -> PequodStore:
    """Return the store of a server that computes from the base data of others."""
    if config.backing_mapping is not None:
        raise SettingError("backing_mapping", "the servers that own the keys have it; give backing_tables here")
    addresses = [one for one in config.backing.removeprefix(_HOMES).rstrip("/").split(",") if one]
    for address in addresses or [""]:
        if fault := fault_of(address):
            raise SettingError("backing", fault)
    tables = table_names(config.backing_tables)
    if not tables:
        raise SettingError("backing_tables", "name the tables whose keys those servers own, such as p,s")
    return PequodStore(addresses, tables, connect=peer_credentials(config).connect)


def peer_credentials(config: ServerConfig) -> PeerCredentials:
    """Return how the server reaches its homes.

    Raises:
        SettingError: The token cannot be read.
    """
    token = ""
    if config.backing_token is not None:
        try:
            token = config.backing_token.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError("backing_token", f"cannot read it: {error}") from error
    return PeerCredentials(
        ca=config.backing_ca,
        certificate=config.tls_certificate if config.backing_ca else None,
        key=config.tls_key if config.backing_ca else None,
        token=token,
        transport=config.transport,
    )


def _mappings(config: ServerConfig) -> tuple[Mapping, ...]:
    tables = table_names(config.backing_tables)
    if config.backing_mapping is None:
        if tables and not config.backing.startswith(_LAKE):
            return (Mapping.generic(tables),)
        raise SettingError(
            "backing",
            "it needs a mapping: give backing_mapping, a file (docs/backing.md has one), or backing_tables, such as "
            "p,s, after `pequod backing install --generic`",
        )
    if tables:
        raise SettingError("backing_tables", "the mapping has the tables already; give either of them")
    try:
        return parse_mappings(config.backing_mapping.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("backing_mapping", f"cannot read it: {error}") from error
    except MappingError as error:
        raise SettingError("backing_mapping", f"{config.backing_mapping}: {error}") from error
