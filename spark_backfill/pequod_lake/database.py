"""The database of the catalog: SQLite, with a connection for each thread and one way to write.

Readers never wait: the journal is a write-ahead log. Writers wait for each other for `_WAIT_S`. A commit is durable
when it returns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakSet, finalize

from pequod_lake.errors import LakeBusyError, LakeError

_WAIT_S: Final = 30.0


class Rows(Protocol):
    """The rows of a statement's result."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the other rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the other rows."""
        ...


class Session(Protocol):
    """Runs statements in SQL; `?` stands for a parameter."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]], /) -> object:
        """Run a statement for each list of parameters."""
        ...


class Database(Protocol):
    """A database of a catalog: sessions of threads, and one way to write."""

    #: How messages name it.
    name: str

    @property
    def connection(self) -> Session:
        """The session of this thread."""
        ...

    def reading(self) -> AbstractContextManager[Session]:
        """Read as of one moment.

        Raises:
            LakeError: It cannot be read.
        """
        ...

    def writing(self) -> AbstractContextManager[Session]:
        """Write all or nothing, alone.

        Raises:
            LakeBusyError: Others wrote for too long.
            LakeError: It cannot be written.
        """
        ...

    def close(self) -> None:
        """Close the sessions of all threads."""
        ...


class _ThreadConnection:
    """A connection that only its thread holds on to: Python lets go of what a thread has when the thread ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        finalize(self, connection.close)


class LakeDatabase:
    """Connections to one SQLite file.

    DuckDB brings an SQLite of its own. Two of them in one process break each other's locks on a file, so nothing here
    may be open while DuckDB has the file attached in this process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: WeakSet[_ThreadConnection] = WeakSet()

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of this thread; it is closed when the thread has ended."""
        held: _ThreadConnection | None = getattr(self._local, "held", None)
        if held is None:
            found = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
            self._local.held = held = _ThreadConnection(found)
            with self._lock:
                self._connections.add(held)
        return held.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read as of one moment.

        Raises:
            LakeError: The file cannot be read.
        """
        try:
            yield from self._transaction("BEGIN")
        except sqlite3.DatabaseError as error:
            raise LakeError(f"the catalog {self.path} cannot be read: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing, alone.

        Raises:
            LakeBusyError: Others wrote for too long.
            LakeError: The disk is full, or the file is damaged; nothing was written.
        """
        try:
            yield from self._transaction("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise LakeBusyError("other processes write to its catalog") from error
            raise LakeError(f"the catalog {self.path} cannot be written: {error}") from error

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self.connection
        connection.execute(begin)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            for held in self._connections:
                held.connection.close()
            self._connections.clear()
        self._local = threading.local()
