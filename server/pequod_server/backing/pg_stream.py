"""The replication connection of a slot, as an asyncio reader.

It is streamed by psycopg2, which speaks the replication protocol; asyncpg does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg2
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from pequod_server.backing.errors import BackingUnavailableError, SchemaError
from pequod_server.backing.pg_schema import SETTINGS
from pequod_server.backing.pg_session import PostgresSession
from pequod_server.backing.sql import quoted

#: How often the database is told how far the feed is, and asked whether it is still there.
_CONFIRM_S: Final = 0.05
PING_S: Final = 1.0


class Stream:
    """A replication connection as an asyncio reader."""

    def __init__(self, session: PostgresSession, cursor: ReplicationCursor, start: int) -> None:
        self._session = session
        self._cursor = cursor
        self._loop = asyncio.get_running_loop()
        self._readable = asyncio.Event()
        self._heard = self._pinged = self._confirmed_at = self._loop.time()
        self._confirmed = self._wanted = start
        #: Whether the database said something since it was last asked.
        self.is_heard = False
        self._fileno: int = cursor.connection.fileno()
        self._loop.add_reader(self._fileno, self._readable.set)

    @property
    def wal_end(self) -> int:
        """How far the database has read its log for this stream, as of its last message."""
        return int(getattr(self._cursor, "wal_end", 0))

    def read(self) -> bytes | None:
        """Return the next message, None if nothing is there."""
        try:
            message: Any = self._cursor.read_message()
        except psycopg2.Error as error:
            raise _broken(self._session, error) from error
        if message is None:
            return None
        payload: bytes = message.payload
        return payload

    def confirm_soon(self, position: int) -> None:
        """Note that everything up to here is taken care of, and say so now and then."""
        self._wanted = max(self._wanted, position)
        if self._loop.time() - self._confirmed_at > 1.0:
            self._send(reply=False)

    def confirm(self, position: int) -> None:
        """Say how far the feed is, if it was not said a moment ago, and ask for an answer now and then."""
        self._wanted = max(self._wanted, position)
        now = self._loop.time()
        if now - self._pinged >= PING_S:
            self._pinged = now
            self._send(reply=True)
        elif self._wanted > self._confirmed and now - self._confirmed_at >= _CONFIRM_S:
            self._send(reply=False)
        if now - self._heard > self._session.timeout_s:
            raise BackingUnavailableError(self._session.name, f"no sign of life for {self._session.timeout_s:g} s")

    async def wait(self) -> None:
        """Wait for a message, or until it is time to say something."""
        wait_s = _CONFIRM_S if self._wanted > self._confirmed else PING_S / 2
        closing = asyncio.ensure_future(self._session.closing.wait())
        readable = asyncio.ensure_future(self._readable.wait())
        try:
            await asyncio.wait({closing, readable}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
            readable.cancel()
        self.is_heard = self._readable.is_set()
        if self.is_heard:
            self._heard = self._loop.time()
            self._readable.clear()

    def close(self) -> None:
        """Stop reading and close the connection."""
        self._loop.remove_reader(self._fileno)
        self._cursor.connection.close()

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
    """Stream the slot of a session from a position on."""

    def connect() -> ReplicationCursor:
        settings = " ".join(f"-c {name}={value.replace(' ', '')}" for name, value in SETTINGS.items())
        connection = psycopg2.connect(
            session.dsn,
            connection_factory=LogicalReplicationConnection,
            options=settings,
            connect_timeout=max(2, int(session.timeout_s)),
            application_name="pequod feed",
        )
        try:
            cursor: ReplicationCursor = connection.cursor()
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


def _close_late(opened: asyncio.Future[ReplicationCursor]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().connection.close()


def _broken(session: PostgresSession, error: psycopg2.Error) -> Exception:
    text = " ".join(str(error).split())
    if error.pgcode is not None and error.pgcode[:2] == "42":
        return SchemaError(session.name, [text])
    return BackingUnavailableError(session.name, text)
