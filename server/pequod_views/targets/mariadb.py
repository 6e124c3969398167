"""Views in MariaDB.

threads   one for each connection, since the driver waits in it
turns     GET_LOCK, which outlives a transaction: a statement that makes or drops a table commits what was before it
updates   a row that is there is updated by its key, and others are inserted. ON DUPLICATE KEY UPDATE would change
          another row where a unique index of the owner stands in the way
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from pequod_views.definition import KEY_BYTES_MAX, KEY_COLUMN, DurableView, TableRow, names_of
from pequod_views.errors import TargetAwayError
from pequod_views.kinds import Cell
from pequod_views.targets.mariadb_connection import (
    FAILURES,
    MariadbConnection,
    bound,
    failure,
    grouped,
    literal,
    parse_address,
)
from pequod_views.targets.sql import SqlTransaction
from pequod_views.targets.sums import MARIADB as TEXTS
from pequod_views.targets.sums import digest_of, has_texts
from pequod_views.targets.target import LookAgain, RowChange, TargetDialect, as_text, quoted

T = TypeVar("T")

_PLACE_S: Final = 5.0
_TURN_S: Final = 30
_CONNECTIONS_MAX: Final = 4
#: Of this database alone: such locks are the server's.
_TURN: Final = "concat('pequod views ', left(sha1(database()), 16))"
#: How a display width that says nothing of the type is shown.
_WIDTH: Final = re.compile(r"^bigint\(\d+\)")


def _cell(cell: Cell) -> bytes | str | int | float | datetime | None:
    """Return a cell as MariaDB keeps it."""
    # A column of MariaDB has no time zone: UTC.
    return cell.replace(tzinfo=None) if isinstance(cell, datetime) else as_text(cell, " ")


def _digests_sum(view: DurableView) -> str:
    """Return the sum of the digests of rows as sums.py has them."""
    texts = [(TEXTS[column.kind.name][0].format(quoted(column.name))) for column in view.columns]
    words = [f"lower(hex({KEY_COLUMN}))", *(f"coalesce(concat(char_length({one}), ':', {one}), '-')" for one in texts)]
    return f"sum(cast(conv(left(md5(concat({', '.join(words)})), 15), 16, 10) AS unsigned))"


_DIALECT: Final = TargetDialect(
    prefix="pequod_views_",
    now_s="(unix_timestamp(sysdate(6)) + 0e0)",
    bytes_type=f"varbinary({KEY_BYTES_MAX})",
    bytes_cast="binary",
    seconds_type="double",
    number_type="bigint",
    number_cast="signed",
    # With a key beside it no longer than an index takes, 3,072 bytes.
    name_type="varchar(191)",
    # Names that differ by a space at their end are two names.
    table_options=" ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    for_update=" FOR UPDATE",
    lock_tables="",
    tell_moved="",
    column_type=lambda kind: kind.mariadb,
    on_conflict=lambda _key, names: (
        f" ON DUPLICATE KEY UPDATE {', '.join(f'{name} = VALUES({name})' for name in names)}"
    ),
    stored=_cell,
    digest=lambda view: partial(digest_of, TEXTS, view) if has_texts(TEXTS, view) else None,
    digests_sum=_digests_sum,
    before=(),
    after=(),
    removal=(),
)


class MariadbTarget:
    """A database of a MariaDB that holds views: some connections, each with one transaction at a time."""

    dialect = _DIALECT

    def __init__(self, database: str) -> None:
        self._address = parse_address(database)
        self.name = self._address.shown
        self._threads = ThreadPoolExecutor(_CONNECTIONS_MAX, "pequod-views-mariadb")
        self._places = asyncio.Semaphore(_CONNECTIONS_MAX)
        self._idle: list[MariadbConnection] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MariadbTransaction]:
        """Begin a transaction; a statement that makes or drops a table commits what was before it."""
        try:
            async with asyncio.timeout(_PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise TargetAwayError(self.name, "all connections to it are in use") from None
        try:
            transaction = MariadbTransaction(self, await self._begun())
            try:
                yield transaction
                await transaction.end("COMMIT")
            except FAILURES as error:
                await self._abandon(transaction)
                raise failure(self.name, error) from error
            except BaseException:
                await self._abandon(transaction)
                raise
            self._idle.append(transaction.connection)
        except FAILURES as error:
            raise failure(self.name, error) from error
        finally:
            self._places.release()

    async def _abandon(self, transaction: MariadbTransaction) -> None:
        """Roll back, so that its locks are gone before the next statement of this process."""
        connection = transaction.connection
        is_open = False
        try:
            if transaction.is_whole:
                await transaction.end("ROLLBACK")
                is_open = True
        except FAILURES:
            # The server rolls back what it has of a connection that broke.
            is_open = False
        finally:
            if is_open:
                self._idle.append(connection)
            else:
                connection.cut()
                connection.close()

    async def _begun(self) -> MariadbConnection:
        """Return a connection with a transaction; one that broke while it was idle is replaced."""
        while self._idle:
            connection = self._idle.pop()
            try:
                await self.run(connection, partial(connection.run_all, ["START TRANSACTION"]))
            except FAILURES:
                connection.close()
                continue
            except BaseException:
                connection.cut()
                connection.close()
                raise
            return connection
        opening = asyncio.get_running_loop().run_in_executor(self._threads, MariadbConnection, self._address)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def run(self, connection: MariadbConnection, work: Callable[[], T]) -> T:
        """Run work with a connection in a thread; who is cancelled breaks the connection off."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            connection.cut()
            await asyncio.wait([running])
            running.exception()
            raise

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[LookAgain]:
        """Have readers look again and again: MariaDB tells nobody what others commit."""
        yield LookAgain()

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()
        self._threads.shutdown(wait=False)


def _close_opened(opening: asyncio.Future[MariadbConnection]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class MariadbTransaction(SqlTransaction):
    """A transaction of MariaDB."""

    dialect = _DIALECT

    def __init__(self, target: MariadbTarget, connection: MariadbConnection) -> None:
        self.connection = connection
        #: Whether no statement was broken off.
        self.is_whole = True
        self._target = target
        self._has_turn = False

    async def end(self, statement: str) -> None:
        """Commit or roll back; then others may have the turn."""
        statements = [statement, "DO release_all_locks()"] if self._has_turn else [statement]
        await self._run(lambda one: one.run_all(statements))

    async def _run(self, work: Callable[[MariadbConnection], T]) -> T:
        try:
            return await self._target.run(self.connection, lambda: work(self.connection))
        except asyncio.CancelledError:
            self.is_whole = False
            raise

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await self.fetch_each(statement, [arguments])

    async def fetch_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of these rows of arguments, many in a message."""
        found = await self._run(lambda one: one.run_all(bound(statement, row) for row in rows))
        return [row for some in found for row in some]

    async def change_each(self, change: RowChange, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Change rows: the lock of each tells that it is there, and then it is updated."""
        lock = f"SELECT {change.told} FROM {change.table} WHERE {change.where} FOR UPDATE"
        update = f"UPDATE {change.table} SET {change.sets} WHERE {change.where}"
        found = await self._run(
            lambda one: one.run_all(bound(statement, row) for row in rows for statement in (lock, update))
        )
        return [row for some in found for row in some]

    async def take_turn(self) -> None:
        """Wait for other transactions that install, uninstall or split."""
        self._has_turn = True
        ((has,),) = await self.fetch(f"SELECT get_lock({_TURN}, {_TURN_S})")
        if not has:
            raise TargetAwayError(self._target.name, f"another command has been changing the views for {_TURN_S} s")

    async def upsert(self, view: DurableView, rows: Sequence[TableRow]) -> None:
        """Write rows by their keys."""
        await self._run(lambda one: _upsert(one, view, rows))

    async def delete(self, view: DurableView, keys: Sequence[bytes]) -> None:
        """Delete the rows of keys."""
        # One by one: a list of keys may become a look at all rows, which waits for those of other managers.
        statement = f"DELETE FROM {quoted(view.table)} WHERE {KEY_COLUMN} = "
        await self._run(lambda one: one.count_all(statement + literal(key) for key in keys))

    async def delete_others(self, view: DurableView, first: bytes, last: bytes | None, keys: Sequence[bytes]) -> None:
        """Delete the rows of a range but those of some keys."""
        statement = f"DELETE FROM {quoted(view.table)} WHERE {KEY_COLUMN} >= $1"

        def delete(one: MariadbConnection) -> None:
            start, done, ordered = first, 0, sorted(keys)
            for kept in grouped(map(literal, ordered)):
                # Up to the last one of these, and it included.
                done += len(kept)
                stop = ordered[done - 1] + b"\0"
                within = bound(f"{statement} AND {KEY_COLUMN} < $2", [start, stop])
                one.run_all([f"{within} AND {KEY_COLUMN} NOT IN ({', '.join(kept)})"])
                start = stop
            if last is None:
                one.run_all([bound(statement, [start])])
            else:
                one.run_all([bound(f"{statement} AND {KEY_COLUMN} < $2", [start, last])])

        await self._run(delete)

    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        rows = await self.fetch(
            "SELECT column_name, column_type FROM information_schema.columns"
            " WHERE table_schema = coalesce($1, database()) AND table_name = $2 ORDER BY ordinal_position",
            *_schema_of(table),
        )
        return {name: _WIDTH.sub("bigint", kind.lower()) for name, kind in rows}

    async def has_unique(self, table: str, column: str) -> bool:
        """Return whether a column is unique by itself."""
        rows = await self.fetch(
            "SELECT 1 FROM information_schema.statistics"
            " WHERE table_schema = coalesce($1, database()) AND table_name = $2 AND non_unique = 0"
            " GROUP BY index_name HAVING count(*) = 1 AND max(column_name) = $3 AND max(sub_part) IS NULL",
            *_schema_of(table),
            column,
        )
        return bool(rows)


def _schema_of(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name


def _upsert(connection: MariadbConnection, view: DurableView, rows: Sequence[TableRow]) -> None:
    table, names = quoted(view.table), [quoted(name) for name in names_of(view.columns)]
    written = [[literal(_cell(cell)) for cell in row] for row in rows]
    there = set[str]()
    for keys in grouped(row[0] for row in written):
        # Without a lock: a list of keys may become a look at all rows, which waits for those of other managers.
        found = connection.run_all([f"SELECT {KEY_COLUMN} FROM {table} WHERE {KEY_COLUMN} IN ({', '.join(keys)})"])
        there.update(literal(key) for (key,) in found[0])
    old = [row for row in written if row[0] in there]
    new = [row for row in written if row[0] not in there]
    if len(names) > 1:
        updates = (
            f"UPDATE {table} SET {', '.join(map(' = '.join, zip(names[1:], row[1:], strict=True)))}"
            f" WHERE {KEY_COLUMN} = {row[0]}"
            for row in old
        )
        # Another program may have deleted the row since it was found.
        new += [row for row, count in zip(old, connection.count_all(updates), strict=True) if not count]
    for inserted in grouped(f"({', '.join(row)})" for row in new):
        connection.run_all([f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join(inserted)}"])
