"""The replication connection of a replication slot, as an asyncio reader.

psycopg2 streams it, which has the replication protocol; asyncpg does not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg2
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from pequod_server.backing.errors import BackingUnavailableError, SchemaError
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.sql import quoted

#: How often the database is told the position of the feed, and asked for a sign of life.
_CONFIRM_S: Final = 0.05
_PING_S: Final = 1.0
#: The same, while the feed may not have passed the last known position of the log.
_PING_AGAIN_S: Final = 0.1

#: Classes of errors that do not concern the commit: the connection, resources, an operator, the state of the server.
_AWAY: Final = frozenset(["08", "53", "55", "57"])


class SenderError(BackingUnavailableError):
    """The database cannot continue the stream."""


class Stream:
    """A replication connection as an asyncio reader."""

    def __init__(self, session: PostgresSession, cursor: ReplicationCursor, start: int) -> None:
        self._session = session
        self._cursor = cursor
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._pinged = self._confirmed_at = self._loop.time()
        self._confirmed = self._wanted = start
        #: Whether the database has answered since it was last asked, and how long the feed has waited for it.
        self._is_heard = self._is_asked = False
        self._silent_s = 0.0
        # A descriptor of our own for the same socket: a broken connection closes its number, which may then be reused.
        self._fileno = os.dup(cursor.connection.fileno())
        self._loop.add_reader(self._fileno, self._hear)

    @property
    def wal_end(self) -> int:
        """How far the database has sent its log, by its last message: it sends a commit whole, or is before it."""
        return int(getattr(self._cursor, "wal_end", 0))

    @property
    def process_id(self) -> int:
        """The number of the database's process that sends."""
        return int(self._cursor.connection.info.backend_pid)

    def read(self) -> bytes | None:
        """Return the next message, None if the database has sent no more yet."""
        try:
            message: Any = self._cursor.read_message()
        except psycopg2.Error as error:
            raise _broken(self._session, error) from error
        if message is None:
            return None
        payload: bytes = message.payload
        return payload

    def confirm(self, position: int, *, is_asked: bool) -> None:
        """Tell the database that everything up to a position is processed, unless it was told a moment ago.

        Args:
            is_asked: Ask the database for its position, too.
        """
        self._wanted = max(self._wanted, position)
        self._is_asked = is_asked
        now = self._loop.time()
        # Messages that it does not read must not pile up: a question that it has not read is not repeated soon.
        if now - self._pinged >= _PING_S or (is_asked and self._is_heard and now - self._pinged >= _PING_AGAIN_S):
            self._pinged, self._is_heard = now, False
            self._send(reply=True)
        elif self._wanted > self._confirmed and now - self._confirmed_at >= _CONFIRM_S:
            self._send(reply=False)

    async def wait(self) -> None:
        """Wait for a message, for a call of `wake`, or until a message to the database is due."""
        wait_s = _CONFIRM_S if self._wanted > self._confirmed else _PING_AGAIN_S if self._is_asked else _PING_S / 2
        before = self._loop.time()
        closing = asyncio.ensure_future(self._session.closing.wait())
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({closing, woken}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
            woken.cancel()
        # If the loop was busy with other work, the feed has not waited.
        self._silent_s += min(wait_s, self._loop.time() - before)
        self._woken.clear()

    def refuse_silence(self) -> None:
        """Raise BackingUnavailableError if nothing has come for too long."""
        if self._silent_s > self._session.timeout_s:
            raise BackingUnavailableError(self._session.name, f"no sign of life for {self._session.timeout_s:g} s")

    def excuse_silence(self) -> None:
        """Note that the database lives and works, though it sends nothing."""
        self._silent_s = 0.0

    def wake(self) -> None:
        """End the wait."""
        self._woken.set()

    def close(self) -> None:
        """Stop reading and close the connection."""
        self._loop.remove_reader(self._fileno)
        os.close(self._fileno)
        self._cursor.connection.close()

    def _hear(self) -> None:
        self._is_heard = True
        self._silent_s = 0.0
        self._woken.set()

    def _send(self, *, reply: bool) -> None:
        try:
            self._cursor.send_feedback(  # type: ignore[no-untyped-call]
                write_lsn=self._wanted, flush_lsn=self._wanted, apply_lsn=self._wanted, reply=reply, force=True
            )
        except psycopg2.Error as error:
            raise _broken(self._session, error) from error
        self._confirmed = self._wanted
        self._confirmed_at = self._loop.time()


@asynccontextmanager
async def streaming(session: PostgresSession, start: int) -> AsyncIterator[Stream]:
    """Stream the replication slot of a session from a position on."""

    def connect() -> ReplicationCursor:
        wanted = {**session.settings, "wal_sender_timeout": f"{int(session.sender_timeout_s * 1000)}ms"}
        settings = " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in wanted.items())
        connection = psycopg2.connect(
            session.dsn,
            connection_factory=LogicalReplicationConnection,
            options=settings,
            connect_timeout=max(2, int(session.timeout_s)),
            # The network detects a dead host, however long the sender may be silent.
            keepalives_idle=max(1, int(session.timeout_s)),
            keepalives_interval=max(1, int(session.timeout_s / 4)),
            keepalives_count=4,
            tcp_user_timeout=int(session.timeout_s * 1000),
            application_name="pequod feed",
        )
        try:
            cursor: ReplicationCursor = connection.cursor()
            session.sender = connection.info.backend_pid
            cursor.execute("IDENTIFY_SYSTEM")
            _refuse_other(session, (cursor.fetchone() or ("", 0))[1])
            cursor.start_replication(
                slot_name=session.feed_name,
                decode=False,
                start_lsn=start,
                options={"proto_version": "1", "publication_names": quoted(session.feed_name)},
            )
        except BaseException:
            connection.close()
            raise
        return cursor

    opening = asyncio.ensure_future(asyncio.to_thread(connect))
    try:
        cursor = await asyncio.shield(opening)
    except psycopg2.Error as error:
        raise _broken(session, error) from error
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    stream = Stream(session, cursor, start)
    try:
        yield stream
    finally:
        stream.close()


def _refuse_other(session: PostgresSession, timeline: int) -> None:
    """Raise BackingUnavailableError if this is not the server that the other connections lead to."""
    if session.history is not None and timeline != session.history.timeline:
        raise BackingUnavailableError(session.name, "it has just failed over")


def _close_late(opened: asyncio.Future[ReplicationCursor]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().connection.close()


def _broken(session: PostgresSession, error: psycopg2.Error) -> Exception:
    text = " ".join(str(error).split())
    if error.pgcode is None or error.pgcode[:2] in _AWAY:
        return BackingUnavailableError(session.name, text)
    if error.pgcode[:2] == "42":
        return SchemaError(session.name, [text])
    return SenderError(session.name, text)
