"""The database behind the cache: it owns the data, the cache loads what is read and hears of every change.

A store is PostgreSQL, SQLite, a lake, or a home of another server. docs/architecture/server.md has the map of the
files. PostgreSQL needs the extra `backing`, so `PostgresStore` is imported from `pequod_server.backing.postgres.store`.
"""

from pequod_server.backing.errors import (
    BackingStaleError,
    BackingUnavailableError,
    MappingError,
    PackError,
    SchemaError,
    WriteRefusedError,
)
from pequod_server.backing.fake import FakeStore
from pequod_server.backing.health import Backoff
from pequod_server.backing.landing import Landing
from pequod_server.backing.mapping import Mapping, parse_mappings
from pequod_server.backing.sqlite.store import SqliteStore
from pequod_server.backing.store import (
    Added,
    Addition,
    BackingStore,
    Changes,
    ConditionalChange,
    Event,
    History,
    Horizon,
    KeyRange,
    Loaded,
    Place,
    Prefetching,
    Progress,
    Releasing,
    Reload,
    RowChange,
    Status,
    WrittenIf,
    WrittenTransaction,
)

__all__ = [
    "Added",
    "Addition",
    "BackingStaleError",
    "BackingStore",
    "BackingUnavailableError",
    "Backoff",
    "Changes",
    "ConditionalChange",
    "Event",
    "FakeStore",
    "History",
    "Horizon",
    "KeyRange",
    "Landing",
    "Loaded",
    "Mapping",
    "MappingError",
    "PackError",
    "Place",
    "Prefetching",
    "Progress",
    "Releasing",
    "Reload",
    "RowChange",
    "SchemaError",
    "SqliteStore",
    "Status",
    "WriteRefusedError",
    "WrittenIf",
    "WrittenTransaction",
    "parse_mappings",
]
