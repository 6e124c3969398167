"""The database behind the cache: it owns the data, the cache loads what is read and hears of every change.

errors.py         what goes wrong
columns.py        one column and one slot: packing, and how order carries over
boxes.py          a range of keys as conditions on columns
mapping.py        key patterns tied to relations, from TOML
values.py         columns to values
store.py          the protocol and what passes through it
landing.py        loads and changes brought together
noted.py          keys that triggers noted, as far as anybody has them
turns.py          long work in slices
sql.py, rows.py   statements for many ranges; records to rows
health.py         status, backoff, feeds that mend themselves
fake.py           a store that follows a test's script
sqlite*.py        the embedded store
lake*.py          a lake, `pequod_lake`
postgres.py       PostgreSQL: pg_schema (its tables), pg_install (what feeds need beside them),
                  pg_session (connections, reads of one moment), pg_slot (logical decoding: pg_stream, the connection;
                  pgoutput, its messages; pg_decoder, messages to events, with pg_rows and pg_judge; pg_lookout, what
                  is asked beside it) and pg_notify (triggers)

PostgreSQL needs the extra `backing`, so `PostgresStore` is imported from `pequod_server.backing.postgres`.
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
from pequod_server.backing.sqlite import SqliteStore
from pequod_server.backing.store import (
    BackingStore,
    Change,
    Changes,
    Event,
    History,
    Horizon,
    KeyRange,
    Loaded,
    LoadingAhead,
    Place,
    Progress,
    Releasing,
    Reload,
    Status,
)

__all__ = [
    "BackingStaleError",
    "BackingStore",
    "BackingUnavailableError",
    "Backoff",
    "Change",
    "Changes",
    "Event",
    "FakeStore",
    "History",
    "Horizon",
    "KeyRange",
    "Landing",
    "Loaded",
    "LoadingAhead",
    "Mapping",
    "MappingError",
    "PackError",
    "Place",
    "Progress",
    "Releasing",
    "Reload",
    "SchemaError",
    "SqliteStore",
    "Status",
    "WriteRefusedError",
    "parse_mappings",
]
