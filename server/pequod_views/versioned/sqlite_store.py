"""A record store of SQLite files, each a replica."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, TypeVar

from pequod_views.versioned.quorums import Quorums
from pequod_views.versioned.records import Cells, KeyPage, Put, StoredCell, StoredColumn, merge
from pequod_views.versioned.registers import BallotRequest, Ballots, Prepare, Vote, swap_at_replicas
from pequod_views.versioned.replicas import ReplicaRefusedError, file_of, refuse_twice

T = TypeVar("T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS cells (
    tbl TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL, base_key TEXT NOT NULL,
    value TEXT, timestamp INTEGER NOT NULL, PRIMARY KEY (tbl, key, name, base_key)
) WITHOUT ROWID"""
# A NULL is below every text, as in `newest`.
_PUT: Final = """
INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value, timestamp = excluded.timestamp
WHERE excluded.timestamp > timestamp OR (excluded.timestamp = timestamp AND excluded.value IS NOT NULL
    AND (value IS NULL OR excluded.value > value))"""
_KEYS: Final = "SELECT DISTINCT key FROM cells WHERE tbl = ?1 AND (?2 IS NULL OR key > ?2) ORDER BY key LIMIT ?3"
_FORGET: Final = "DELETE FROM cells WHERE tbl = ? AND key = ? AND name = ? AND base_key = ? AND timestamp <= ?"
_REGISTERS: Final = """
CREATE TABLE IF NOT EXISTS registers (
    name TEXT NOT NULL PRIMARY KEY, promised TEXT NOT NULL, accepted TEXT NOT NULL, value TEXT
) WITHOUT ROWID"""
_PREPARE: Final = """
INSERT INTO registers VALUES (?1, ?2, '', NULL)
ON CONFLICT DO UPDATE SET promised = excluded.promised WHERE excluded.promised > promised"""
_ACCEPT: Final = """
INSERT INTO registers VALUES (?1, ?2, ?2, ?3)
ON CONFLICT DO UPDATE SET promised = excluded.promised, accepted = excluded.accepted, value = excluded.value
WHERE excluded.promised >= promised"""
_PROMISE: Final = "SELECT promised, accepted, value FROM registers WHERE name = ?"
_BUSY_S: Final = 5.0


class SqliteReplicas:
    """Replicas in files; a replica that is marked as down neither answers nor takes writes.

    Args:
        paths: One file for each replica.
        synchronous: SQLite's setting of that name. With less than FULL a power cut may take writes back.
        missing: Whether files that are not there are made, or refused: an empty one in the place of a replica is one
            that has lost everything, and still counts.

    Raises:
        ReplicaRefusedError: A file is there twice, cannot be opened, is no replica, or is missing.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
        missing: Literal["made", "refused"] = "made",
    ) -> None:
        refuse_twice([file_of(path) for path in paths], list(map(str, paths)))
        self.replica_count = len(paths)
        #: The numbers of the replicas that are away.
        self.down: set[int] = set()
        self._quorums = Quorums(range(len(paths)), list(map(str, paths)), sqlite3.Error)
        self._ballots = Ballots(uuid.uuid4().hex)
        self._threads = [ThreadPoolExecutor(1, f"pequod-replica-{number}") for number in range(len(paths))]
        self._files: list[sqlite3.Connection] = []
        try:
            for path in paths:
                self._files.append(_opened(path, synchronous, missing))
        except ReplicaRefusedError:
            self.close()
            raise

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        """Return the newest of each cell."""
        merged: dict[StoredColumn, StoredCell] = {}
        for cells in await self._ask(lambda file: _read(file, table, key), quorum):
            merge(merged, cells)
        return merged if columns is None else {one: merged[one] for one in columns if one in merged}

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Write cells."""
        rows = [(table, key, *column, *cell) for column, cell in cells.items()]
        await self._ask(lambda file: _write(file, rows), quorum)

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        """Write cells of several records."""
        rows = [(put.table, put.key, *column, *cell) for put in puts for column, cell in put.cells]
        await self._ask(lambda file: _write(file, rows), quorum)

    async def keys(self, table: str, after: str | None, count: int) -> KeyPage:
        """Return the first keys of a table after one."""

        def read(file: sqlite3.Connection) -> list[tuple[str]]:
            return file.execute(_KEYS, (table, after, count)).fetchall()

        pages = await self._quorums.ask_all(
            lambda number: self._run(number, read), self.replica_count // 2 + 1, self.down
        )
        keys = sorted({key for rows in pages for (key,) in rows})[:count]
        return KeyPage(keys, self.replica_count - len(pages))

    async def forget(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Remove cells."""
        rows = [(table, key, *column, cell.timestamp) for column, cell in cells.items()]
        await self._ask(lambda file: _write(file, rows, _FORGET), quorum)

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        """Set a register if it has another value."""

        def ask(request: BallotRequest) -> Awaitable[list[Vote]]:
            return self._ask(lambda file: _promise(file, request), self.replica_count // 2 + 1)

        return await swap_at_replicas(ask, register, old, new, self._ballots)

    async def spread(self) -> None:
        """Bring all replicas that are up to one state (anti-entropy)."""
        up = [number for number in range(self.replica_count) if number not in self.down]
        for source in up:
            rows = await self._run(source, lambda file: file.execute("SELECT * FROM cells").fetchall())
            for number in up:
                await self._run(number, lambda file, rows=rows: _write(file, rows))  # type: ignore[misc]

    async def _ask(self, work: Callable[[sqlite3.Connection], T], quorum: int) -> list[T]:
        """Have all replicas that are up work; return what the first of them answer, without waiting for the others."""
        return await self._quorums.ask(lambda number: self._run(number, work), quorum, self.down)

    async def _run(self, number: int, work: Callable[[sqlite3.Connection], T]) -> T:
        file = self._files[number]
        return await asyncio.get_running_loop().run_in_executor(self._threads[number], work, file)

    def close(self) -> None:
        """Close the files."""
        for thread in self._threads:
            thread.shutdown()
        for file in self._files:
            file.close()


def _opened(path: Path, synchronous: str, missing: Literal["made", "refused"]) -> sqlite3.Connection:
    """Open a file.

    Raises:
        ReplicaRefusedError: It cannot be opened, is no replica, or is missing.
    """
    if missing == "refused" and not path.exists():
        raise ReplicaRefusedError(str(path), "there is no such file; the programs that write make it")
    try:
        file = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        try:
            _refuse_other(file, path, missing)
            file.execute("PRAGMA journal_mode = WAL")
            file.execute(f"PRAGMA synchronous = {synchronous}")
            file.execute(_SCHEMA)
            file.execute(_REGISTERS)
            file.commit()
        except BaseException:
            file.close()
            raise
    except sqlite3.Error as error:
        raise ReplicaRefusedError(str(path), str(error)) from error
    return file


def _refuse_other(file: sqlite3.Connection, path: Path, missing: Literal["made", "refused"]) -> None:
    """Pass if a database is a replica, or is to be one."""
    there = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "cells" not in there and (there or missing == "refused"):
        raise ReplicaRefusedError(str(path), "it is a database, and no replica")


def _read(file: sqlite3.Connection, table: str, key: str) -> dict[StoredColumn, StoredCell]:
    rows = file.execute("SELECT name, base_key, value, timestamp FROM cells WHERE tbl = ? AND key = ?", (table, key))
    return {StoredColumn(name, base_key): StoredCell(value, timestamp) for name, base_key, value, timestamp in rows}


def _promise(file: sqlite3.Connection, request: BallotRequest) -> Vote:
    register, ballot = request.register, request.ballot
    with file:
        if isinstance(request, Prepare):
            file.execute(_PREPARE, (register, ballot))
        else:
            file.execute(_ACCEPT, (register, ballot, request.value))
        promised, accepted, value = file.execute(_PROMISE, (register,)).fetchone()
    is_given = promised == ballot
    return Vote(is_given, accepted if is_given else promised, value)


def _write(file: sqlite3.Connection, rows: Sequence[tuple[object, ...]], statement: str = _PUT) -> None:
    with file:
        file.executemany(statement, rows)
