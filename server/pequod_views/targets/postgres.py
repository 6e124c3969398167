"""Views in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from pequod_views.definition import KEY_COLUMN, DurableView, TableRow, names_of
from pequod_views.errors import TargetAwayError, TargetBusyError, TargetMissingError, TargetRefusedError
from pequod_views.targets.sql import SqlTransaction
from pequod_views.targets.sums import POSTGRES as TEXTS
from pequod_views.targets.sums import digest_of, has_texts
from pequod_views.targets.target import RowChange, TargetDialect, on_conflict, quoted
from pequod_views.targets.waiting_sql import FUNCTIONS, FUNCTIONS_REMOVAL

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

#: Errors of a database that is away, stops, starts, or is full for the moment; all others are its refusals.
_AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ObjectInUseError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TransactionRollbackError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_CONNECT_S: Final = 5.0
_STATEMENT_S: Final = 60.0
_CLOSE_S: Final = 2.0
#: A transaction whose manager is silent for this time is rolled back, so that a dead machine keeps no locks.
_IDLE_MS: Final = 20_000
_CONNECTIONS_MAX: Final = 4
_SETTINGS: Final = {"application_name": "pequod views", "idle_in_transaction_session_timeout": str(_IDLE_MS)}
#: How often a listener looks although it was told nothing: a pooler between may lose what it is told.
_LOOK_S: Final = 0.1


def _digests_sum(view: DurableView) -> str:
    """Return the sum of the digests of rows as sums.py has them."""
    texts = [(TEXTS[column.kind.name][0].format(quoted(column.name))) for column in view.columns]
    words = [f"encode({KEY_COLUMN}, 'hex')", *(f"coalesce(length({one}) || ':' || {one}, '-')" for one in texts)]
    return f"sum(('x' || left(md5(convert_to({' || '.join(words)}, 'UTF8')), 15))::bit(60)::bigint)"


_DIALECT: Final = TargetDialect(
    prefix="pequod_views.",
    now_s="extract(epoch FROM clock_timestamp())::float8",
    bytes_type="bytea",
    seconds_type="double precision",
    number_type="bigint",
    name_type="text",
    bytes_cast="bytea",
    number_cast="bigint",
    table_options="",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    for_update=" FOR UPDATE",
    lock_tables="LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE",
    tell_moved="SELECT pg_notify('pequod_views', '')",
    column_type=lambda kind: kind.postgres,
    on_conflict=on_conflict,
    stored=lambda cell: cell,
    digest=lambda view: partial(digest_of, TEXTS, view) if has_texts(TEXTS, view) else None,
    digests_sum=_digests_sum,
    before=("CREATE SCHEMA IF NOT EXISTS pequod_views",),
    after=FUNCTIONS,
    # A schema in which a person has put other things is refused, and with it the whole transaction.
    removal=(*FUNCTIONS_REMOVAL, "DROP SCHEMA pequod_views"),
)


class PostgresTarget:
    """A PostgreSQL that holds views."""

    dialect = _DIALECT

    def __init__(self, dsn: str) -> None:
        scheme, _, rest = dsn.partition("://")
        self.name = f"{scheme}://{rest.rpartition('@')[2]}"
        self._dsn = dsn
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        """Begin a transaction."""
        try:
            pool = await self._open()
            async with pool.acquire(timeout=_CONNECT_S) as connection, connection.transaction():
                yield PostgresTransaction(connection)
        except _AWAY as error:
            raise self._away(error) from error
        except asyncpg.PostgresError as error:
            raise TargetRefusedError(self.name, str(error)) from error

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[PostgresNews]:
        """Listen for transactions that move parts, by a connection of its own."""
        news = PostgresNews()
        try:
            connection = await asyncpg.connect(self._dsn, timeout=_CONNECT_S, server_settings=_SETTINGS)
            await connection.add_listener("pequod_views", news.tell)
        except _AWAY as error:
            raise self._away(error) from error
        except asyncpg.PostgresError as error:
            raise TargetRefusedError(self.name, str(error)) from error
        try:
            yield news
        finally:
            connection.terminate()

    def _away(self, error: Exception) -> TargetAwayError:
        if isinstance(error, asyncpg.InvalidCatalogNameError):
            return TargetMissingError(self.name, "there is no such database; check its name")
        if isinstance(error, asyncpg.TransactionRollbackError | asyncpg.LockNotAvailableError):
            return TargetBusyError(self.name, str(error))
        return TargetAwayError(self.name, str(error) or type(error).__name__)

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=_CONNECTIONS_MAX,
                    timeout=_CONNECT_S,
                    command_timeout=_STATEMENT_S,
                    server_settings=_SETTINGS,
                )
        return self._pool

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._pool.close()
        except (*_AWAY, asyncpg.PostgresError):
            self._pool.terminate()


class PostgresNews:
    """Hears what transactions that move parts tell when they are committed."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def tell(self, *_: object) -> None:
        """Take note of a transaction."""
        self._news.set()

    async def wait(self, wait_s: float) -> None:
        """Wait for the next transaction."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(wait_s, _LOOK_S)):
                await self._news.wait()
        self._news.clear()


class PostgresTransaction(SqlTransaction):
    """A transaction of PostgreSQL."""

    dialect = _DIALECT

    def __init__(self, connection: PoolConnectionProxy[asyncpg.Record]) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return [tuple(row) for row in await self._connection.fetch(statement, *arguments)]

    async def fetch_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of these rows of arguments, in one round trip."""
        if not rows:
            return []
        return [tuple(row) for row in await self._connection.fetchmany(statement, rows)]

    async def change_each(self, change: RowChange, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Change rows, in one round trip."""
        return await self.fetch_each(change.returning, rows)

    async def take_turn(self) -> None:
        """Wait for other transactions that take a turn."""
        await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('pequod views'))")

    async def upsert(self, view: DurableView, rows: Sequence[TableRow]) -> None:
        """Write rows by their keys."""
        names = [quoted(name) for name in names_of(view.columns)]
        types = ["bytea", *(column.kind.postgres for column in view.columns)]
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types, 1))
        table = quoted(view.table)
        conflict = "NOTHING"
        if len(names) > 1:
            old = ", ".join(f"{table}.{name}" for name in names[1:])
            new = ", ".join(f"excluded.{name}" for name in names[1:])
            sets = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
            conflict = f"UPDATE SET {sets} WHERE ({old}) IS DISTINCT FROM ({new})"
        await self._connection.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT * FROM unnest({arrays})"
            f" ON CONFLICT ({names[0]}) DO {conflict}",
            *map(list, zip(*rows, strict=True)),
        )

    async def delete(self, view: DurableView, keys: Sequence[bytes]) -> None:
        """Delete the rows of keys."""
        await self._connection.execute(
            f"DELETE FROM {quoted(view.table)} WHERE pequod_key = ANY($1::bytea[])", list(keys)
        )

    async def delete_others(self, view: DurableView, first: bytes, last: bytes | None, keys: Sequence[bytes]) -> None:
        """Delete the rows of a range but those of some keys."""
        await self._connection.execute(
            f"DELETE FROM {quoted(view.table)} AS old"
            " WHERE pequod_key >= $1 AND ($2::bytea IS NULL OR pequod_key < $2)"
            " AND NOT EXISTS (SELECT FROM unnest($3::bytea[]) AS kept (key) WHERE kept.key = old.pequod_key)",
            first,
            last,
            list(keys),
        )

    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        rows = await self.fetch(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            quoted(table),
        )
        # The short name is the one that the table is made with.
        return {name: "timestamptz" if kind == "timestamp with time zone" else kind for name, kind in rows}

    async def has_unique(self, table: str, column: str) -> bool:
        """Return whether a column is unique by itself, at the end of each statement."""
        rows = await self.fetch(
            "SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]"
            " WHERE indrelid = to_regclass($1) AND attname = $2 AND indnkeyatts = 1 AND indpred IS NULL"
            " AND indisunique AND indimmediate AND indisvalid",
            quoted(table),
            column,
        )
        return bool(rows)
