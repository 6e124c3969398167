"""The database of the catalog in PostgreSQL, for lakes that several machines use.

    writing     BEGIN, pg_advisory_xact_lock: one writer at a time, as in SQLite
    now         clock_timestamp() of the server: one clock for all machines
    locks       session advisory locks: they end with their process, as file locks do
    lake_alive  until when each writer is alive: a machine that is stopped keeps its session

A lock's number has what it is for in its upper 16 bits, and a writer's id or a reader's snapshot below. Advisory locks
are of one database, so a lake has a database of its own, and a pooler that shares sessions cannot stand before it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final
from weakref import WeakSet, finalize

import psycopg

from pequod_lake.clock import Stamp
from pequod_lake.database import Rows
from pequod_lake.errors import LakeBusyError, LakeError, LakeUnreachableError
from pequod_lake.locks import Lock

#: A writer that has said nothing for so long is taken for dead, though its session lives.
ALIVE_S: Final = 60.0
#: How long writers wait for each other, and how long one may stop within its transaction.
_WAIT: Final = "30s"
_COMMIT: Final = 0x5043 << 48
_WRITER: Final = 0x5057
_READER: Final = 0x5052
_ID_BITS: Final = 48
ALIVE_TABLE: Final = "CREATE TABLE lake_alive (writer TEXT PRIMARY KEY, until_at TIMESTAMPTZ NOT NULL)"
_SETTINGS: Final = f"""
SELECT set_config('lock_timeout', '{_WAIT}', false),
    set_config('idle_in_transaction_session_timeout', '{_WAIT}', false),
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
#: So that a session whose machine is gone ends in half a minute on both sides.
_KEEPALIVE: Final[Any] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
#: What writers left that ended without a word.
_FORGET: Final = "DELETE FROM lake_alive WHERE until_at < clock_timestamp() - interval '1 day'"
_HELD: Final = """
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@lru_cache(maxsize=256)
def _marked(sql: str) -> str:
    assert "%" not in sql, sql
    return sql.replace("?", "%s")


class PostgresSession:
    """A connection; it tells errors as those of the lake."""

    def __init__(self, dsn: str, name: str) -> None:
        self._name = name
        with self._errors():
            self.connection = psycopg.connect(
                dsn, autocommit=True, connect_timeout=10, application_name="pequod-lake", **_KEEPALIVE
            )
            self.connection.execute(_SETTINGS)
        finalize(self, self.connection.close)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, as far as is known."""
        return not self.connection.closed and not self.connection.broken

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Run a statement.

        Raises:
            LakeBusyError: Others wrote for too long, or the server cannot be reached.
            LakeError: It was refused.
        """
        with self._errors():
            return self.connection.execute(_marked(sql), parameters)

    def executemany(self, sql: str, parameters: Sequence[Sequence[Any]], /) -> None:
        """Run a statement for each list of parameters.

        Raises:
            LakeBusyError, LakeError: As for `execute`.
        """
        with self._errors():
            self.connection.cursor().executemany(_marked(sql), parameters)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.LockNotAvailable as error:
            raise LakeBusyError("other processes write to its catalog") from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise LakeUnreachableError(f"its catalog {self._name} cannot be reached: {str(error).strip()}") from error
        except psycopg.Error as error:
            raise LakeError(f"the catalog {self._name} refuses a statement: {error}") from error


class PostgresDatabase:
    """Sessions with one database, one for each thread."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.name = shown(dsn)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._sessions: WeakSet[PostgresSession] = WeakSet()

    @property
    def connection(self) -> PostgresSession:
        """The session of this thread, a new one if it broke; it ends with the thread."""
        held: PostgresSession | None = getattr(self._local, "held", None)
        if held is None or not held.is_usable:
            self._local.held = held = self.new_session()
            with self._lock:
                self._sessions.add(held)
        return held

    def new_session(self) -> PostgresSession:
        """Return a session for which the caller is responsible."""
        return PostgresSession(self.dsn, self.name)

    @contextmanager
    def reading(self) -> Iterator[PostgresSession]:
        """Read as of one moment.

        Raises:
            LakeBusyError: The server cannot be reached.
        """
        yield from self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @contextmanager
    def writing(self) -> Iterator[PostgresSession]:
        """Write all or nothing, alone.

        Raises:
            LakeBusyError: Others wrote for too long, or the server cannot be reached. If it broke while the transaction
                was committed, nobody knows whether it was.
        """
        yield from self._transaction("BEGIN", f"SELECT pg_advisory_xact_lock({_COMMIT})")

    def now(self) -> Stamp:
        """Return the present moment of the server; within a transaction, too."""
        (wall_us,) = self.connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        ).fetchone()
        return Stamp("", wall_us / 1e6, wall_us)

    def _transaction(self, *begin: str) -> Iterator[PostgresSession]:
        session = self.connection
        try:
            for statement in begin:
                session.execute(statement)
            yield session
            session.execute("COMMIT")
        except BaseException:
            if session.is_usable and session.in_transaction:
                with suppress(LakeError):
                    session.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """End the sessions of all threads."""
        with self._lock:
            for held in self._sessions:
                held.connection.close()
            self._sessions.clear()
        self._local = threading.local()


class _SessionLock:
    """A lock of the process's session."""

    def __init__(self, locks: SessionLocks, id_: str, number: int) -> None:
        self.id = id_
        self.number = number
        self._locks = locks

    def release(self) -> None:
        """Give the lock back; later calls do nothing."""
        self._locks.release(self)


class SessionLocks:
    """The locks of a lake whose catalog is in PostgreSQL: those of this process are of one session.

    Invariants:
        1. A writer's lock is held, and it is alive, before its row of the fence is written.
        2. While a process has locks, a thread says that its writers are alive, and takes the locks again if the session
           broke. Whether a sweep came in between, the rows of the fence know.
    """

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._guard = threading.Lock()
        self._session: PostgresSession | None = None
        self._held: set[_SessionLock] = set()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def write(self) -> Lock:
        """Hold the lock of a new writer."""
        id_ = secrets.token_hex(_ID_BITS // 8)
        with self._guard:
            lock = _SessionLock(self, id_, _WRITER << _ID_BITS | int(id_, 16))
            self._take(self._connected(), lock)
            self._keep(lock)
            self._say_alive([lock])
            self._connected().execute(_FORGET)
        return lock

    def read(self, number: int) -> Lock:
        """Hold a lock by which the files of a snapshot stay."""
        with self._guard:
            lock = _SessionLock(self, str(number), _READER << _ID_BITS | number)
            self._take(self._connected(), lock)
            self._keep(lock)
        return lock

    def writers(self) -> set[str]:
        """Return the ids of the writers whose locks are held, and which are alive."""
        held = {f"{one & (1 << _ID_BITS) - 1:012x}" for one in self._numbers(_WRITER)}
        found = self._database.connection.execute("SELECT writer FROM lake_alive WHERE until_at > clock_timestamp()")
        return held & {writer for (writer,) in found.fetchall()}

    def numbers(self) -> list[int]:
        """Return the snapshots that are read, one for each process that reads it."""
        return [one & (1 << _ID_BITS) - 1 for one in self._numbers(_READER)]

    def release(self, lock: _SessionLock) -> None:
        """Give a lock back; a session that broke has given it back."""
        with self._guard:
            if lock not in self._held:
                return
            self._held.discard(lock)
            session = self._session
            if session is not None and session.is_usable:
                with suppress(LakeError):
                    shared = "_shared" if lock.number >> _ID_BITS == _READER else ""
                    session.execute(f"SELECT pg_advisory_unlock{shared}(?)", (lock.number,))
                    session.execute("DELETE FROM lake_alive WHERE writer = ?", (lock.id,))

    def close(self) -> None:
        """End the session, and with it all its locks."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._guard:
            self._held.clear()
            if self._session is not None:
                self._session.connection.close()
                self._session = None

    def _numbers(self, kind: int) -> list[int]:
        rows = self._database.connection.execute(_HELD).fetchall()
        return [number for (number,) in rows if number >> _ID_BITS == kind]

    def _connected(self) -> PostgresSession:
        """Return the session with the locks; if it broke, a new one that has taken them again."""
        if self._session is None or not self._session.is_usable:
            session = self._database.new_session()
            for lock in self._held:
                self._take(session, lock)
            self._session = session
        return self._session

    def _take(self, session: PostgresSession, lock: _SessionLock) -> None:
        shared = "_shared" if lock.number >> _ID_BITS == _READER else ""
        session.execute(f"SELECT pg_advisory_lock{shared}(?)", (lock.number,))

    def _keep(self, lock: _SessionLock) -> None:
        self._held.add(lock)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="lake-alive", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._ended.wait(ALIVE_S / 6):
            with self._guard, suppress(LakeError):
                if self._held:
                    self._connected()
                    self._say_alive([lock for lock in self._held if lock.number >> _ID_BITS == _WRITER])

    def _say_alive(self, locks: Sequence[_SessionLock]) -> None:
        self._connected().executemany(
            "INSERT INTO lake_alive VALUES (?, clock_timestamp() + ? * interval '1 second') "
            "ON CONFLICT (writer) DO UPDATE SET until_at = excluded.until_at",
            [(lock.id, ALIVE_S) for lock in locks],
        )


def shown(dsn: str) -> str:
    """Return how a connection string is shown, and kept: without its password.

    Raises:
        LakeError: It is none.
    """
    try:
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise LakeError(f"the catalog is no connection string of PostgreSQL: {str(error).strip()}") from error
    parts.pop("password", None)
    return psycopg.conninfo.make_conninfo("", **parts)
