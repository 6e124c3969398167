"""The service for computes of a server, made of its settings: beside a database, or of the base data of its clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod.engine import Engine
from pequod.errors import SettingError
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases
from pequod_server.freshness.own import OwnHistory
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.home.origin import DatabaseOrigin, Origin
from pequod_server.homes.home.own_origin import MemoryOrigin
from pequod_server.homes.home.passed_origin import PassedOrigin
from pequod_server.homes.home.relay import Relay
from pequod_server.homes.home.service import PeerService
from pequod_server.homes.rules import HomeRules
from pequod_server.memory.admission import Admission
from pequod_server.memory.keeper import limit_bytes
from pequod_server.once.memory import RequestIds
from pequod_server.setting_kinds import table_names

#: The part of `memory_limit` that kept changes take at the most; with more, rows would be evicted for them.
_KEPT_PART: Final = 8


def make_peer_service(
    config: ServerConfig,
    engine: Engine,
    databases: Databases,
    tables: Sequence[bytes],
    server_id: int,
    admission: Admission,
    rules: HomeRules | None = None,
    own: OwnHistory | None = None,
    ids: RequestIds | None = None,
) -> PeerService:
    """Return the service for computes of a server: they ask for rows of its database, or of its clients."""
    keep_bytes = min(config.peer_keep_bytes, limit_bytes(config.memory_limit) // _KEPT_PART)
    relay = Relay(keep_bytes, engine.ledger.change_watches)
    exported = table_names(config.peer_exports)
    if exported and not tables:
        raise SettingError("peer_exports", "only a home beside one database exports what it computes")
    if shared := set(exported) & set(tables):
        raise SettingError("peer_exports", f"table {min(shared)!r} is the database's, which other servers load anyway")
    writes_max = config.batch_commands_max
    if not databases.all:
        tell_time = databases.expiring.pass_due
        own_origin = MemoryOrigin(engine, server_id, relay, own, ids, databases)
        return PeerService(own_origin, admission, rules, writes_max=writes_max, tell_time=tell_time)
    store = databases.all[0].store
    origin: Origin
    if not isinstance(store, PequodStore):
        origin = DatabaseOrigin(engine, databases, tables, relay, exported)
    elif exported:
        raise SettingError("peer_exports", "a home exports what it computes, and this server has homes behind it")
    else:
        origin = PassedOrigin(engine, databases, tables, relay, store, server_id)
    return PeerService(origin, admission, rules, writes_max=writes_max)
