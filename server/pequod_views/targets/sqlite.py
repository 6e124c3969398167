"""Views in a SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pequod_views.definition import DurableView, TableRow, names_of
from pequod_views.errors import TargetAwayError, TargetMissingError, TargetRefusedError
from pequod_views.kinds import Cell
from pequod_views.targets.sql import SqlTransaction
from pequod_views.targets.sums import CellsSum, digest_of_cells
from pequod_views.targets.target import LookAgain, Missing, RowChange, TargetDialect, as_text, on_conflict, quoted

T = TypeVar("T")

#: How long a transaction waits for that of another process: SQLite has one writer at a time.
_BUSY_S: Final = 5.0
#: How often it looks meanwhile. SQLite itself looks ten times a second after a while: beside a process that writes
#: without a pause it then waits for seconds, and a lease ends.
_BUSY_LOOK_S: Final = 0.002
#: Errors that say what is wrong with a statement; all others are about the file.
_REFUSALS: Final = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, OverflowError)
_REFUSED_WORDS: Final = (
    "no such",
    "has no column",
    "syntax error",
    "already exists",
    "cannot modify",
    "unknown database",
)


def _cell(cell: Cell) -> bytes | str | int | float | None:
    """Return a cell as SQLite keeps it."""
    return as_text(cell, " ")


DIALECT: Final = TargetDialect(
    prefix="pequod_views_",
    now_s="((julianday('now') - 2440587.5) * 86400.0)",
    bytes_type="BLOB",
    seconds_type="REAL",
    number_type="INTEGER",
    name_type="text",
    bytes_cast="BLOB",
    number_cast="INTEGER",
    table_options="",
    skip_locked="",
    for_update="",
    lock_tables="",
    tell_moved="",
    column_type=lambda kind: kind.sqlite,
    on_conflict=on_conflict,
    stored=_cell,
    digest=lambda _view: lambda row: digest_of_cells([_cell(cell) for cell in row]),
    digests_sum=lambda view: f"pequod_digests({', '.join(map(quoted, names_of(view.columns)))})",
    before=(),
    after=(),
    removal=(),
)


class SqliteTarget:
    """A SQLite file that holds views: one connection in one thread, one transaction at a time.

    Args:
        missing: Whether a file that is not there is made.
    """

    dialect = DIALECT

    def __init__(self, path: Path, missing: Missing) -> None:
        self.name = f"sqlite:{path}"
        self._path = path
        self._missing = missing
        self._thread = ThreadPoolExecutor(1, "pequod-views-sqlite")
        self._turn = asyncio.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """Begin a transaction."""
        async with self._turn:
            try:
                await self._run(self._begin)
                yield SqliteTransaction(self)
                await self._run(lambda: self._open().commit())
            except sqlite3.Error as error:
                await self._rollback()
                is_refusal = isinstance(error, _REFUSALS) or any(word in str(error) for word in _REFUSED_WORDS)
                raise (TargetRefusedError if is_refusal else TargetAwayError)(self.name, str(error)) from error
            except OverflowError as error:
                await self._rollback()
                raise TargetRefusedError(self.name, str(error)) from error
            except OSError as error:
                await self._rollback()
                raise TargetAwayError(self.name, str(error)) from error
            except BaseException:
                await self._rollback()
                raise

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[LookAgain]:
        """Have readers look again and again."""
        yield LookAgain()

    async def execute(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a part of the present transaction in the thread."""
        return await self._run(lambda: work(self._open()))

    def _begin(self) -> None:
        # At once for writing: a transaction that wanted to write later could fail then.
        connection, end_s = self._open(), time.monotonic() + _BUSY_S
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                # Its extended codes say why in their higher bytes.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end_s:
                    raise
            time.sleep(_BUSY_LOOK_S)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run work in the thread.

        Requires:
            It returns no cursor: one that is dropped in the thread of the loop resets its statement, which the thread
            here may be using again, and that fails as a misuse.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _rollback(self) -> None:
        def rollback() -> None:
            connection, self._connection = self._connection, None
            if connection is not None:
                # Closing rolls back, too, and a file that was replaced is opened anew.
                connection.close()

        await asyncio.shield(self._run(rollback))

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            found = self._path.stat()
            if (found.st_dev, found.st_ino) != self._file:
                raise sqlite3.OperationalError("the file has been replaced")
            return self._connection
        if not (self._path if self._missing == "refused" else self._path.parent).exists():
            raise TargetMissingError(self.name, "there is no such file, and only `pequod views install` makes one")
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_S, check_same_thread=False)
        try:
            # Readers see the state before a transaction while it runs, and do not wait.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA busy_timeout = 0")
        except sqlite3.Error:
            connection.close()
            raise
        connection.create_aggregate("pequod_digests", -1, CellsSum)  # type: ignore[arg-type]
        found = self._path.stat()
        self._file = found.st_dev, found.st_ino
        self._connection = connection
        return connection

    async def close(self) -> None:
        """Close the connection."""
        await self._rollback()
        self._thread.shutdown(wait=False)


class SqliteTransaction(SqlTransaction):
    """A transaction of SQLite."""

    dialect = DIALECT

    def __init__(self, target: SqliteTarget) -> None:
        self._execute = target.execute

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        named = {str(number): argument for number, argument in enumerate(arguments, 1)}
        return await self._execute(lambda connection: connection.execute(statement, named).fetchall())

    async def fetch_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of these rows of arguments, in one turn of the thread."""
        named = [{str(number): argument for number, argument in enumerate(row, 1)} for row in rows]
        return await self._execute(
            lambda connection: [row for one in named for row in connection.execute(statement, one).fetchall()]
        )

    async def change_each(self, change: RowChange, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Change rows, in one turn of the thread."""
        return await self.fetch_each(change.returning, rows)

    async def take_turn(self) -> None:
        """All transactions on a file take turns."""

    async def upsert(self, view: DurableView, rows: Sequence[TableRow]) -> None:
        """Write rows by their keys."""
        names = [quoted(name) for name in names_of(view.columns)]
        conflict = "NOTHING"
        if len(names) > 1:
            changed = " OR ".join(f"{name} IS NOT excluded.{name}" for name in names[1:])
            conflict = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names[1:])} WHERE {changed}"
        statement = (
            f"INSERT INTO {quoted(view.table)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            f" ON CONFLICT ({names[0]}) DO {conflict}"
        )
        cells = [tuple(map(_cell, row)) for row in rows]
        await self._write(statement, cells)

    async def delete(self, view: DurableView, keys: Sequence[bytes]) -> None:
        """Delete the rows of keys."""
        statement = f"DELETE FROM {quoted(view.table)} WHERE pequod_key = ?"
        await self._write(statement, [(key,) for key in keys])

    async def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(statement, rows)

        await self._execute(write)

    async def delete_others(self, view: DurableView, first: bytes, last: bytes | None, keys: Sequence[bytes]) -> None:
        """Delete the rows of a range but those of some keys."""

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS pequod_kept (key BLOB PRIMARY KEY) WITHOUT ROWID")
            connection.execute("DELETE FROM pequod_kept")
            connection.executemany("INSERT INTO pequod_kept VALUES (?)", [(key,) for key in keys])
            connection.execute(
                f"DELETE FROM {quoted(view.table)} WHERE pequod_key >= $1 AND ($2 IS NULL OR pequod_key < $2)"
                " AND pequod_key NOT IN (SELECT key FROM pequod_kept)",
                {"1": first, "2": last},
            )

        await self._execute(delete)

    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        rows = await self.fetch("SELECT name, type FROM pragma_table_info($1)", table)
        return {name: kind.lower() for name, kind in rows}

    async def has_unique(self, table: str, column: str) -> bool:
        """Return whether a column is unique by itself."""
        rows = await self.fetch(
            'SELECT 1 FROM pragma_index_list($1) AS one WHERE one."unique" AND NOT one.partial'
            " AND (SELECT group_concat(name) FROM pragma_index_info(one.name)) = $2",
            table,
            column,
        )
        return bool(rows)
