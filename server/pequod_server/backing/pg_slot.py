"""Changes from a replication slot: durable, in commit order, resumed at a position.

The slot keeps the log from the position that the feed has confirmed, so nothing is lost while a server is away, up
to the limit that the database sets (`max_slot_wal_keep_size`). It is streamed by psycopg2, which speaks the
replication protocol; asyncpg does not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg2
from psycopg2.extras import LogicalReplicationConnection, ReplicationCursor

from pequod_server.backing.errors import BackingUnavailableError, PackError, SchemaError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.pg_schema import SETTINGS, Facts
from pequod_server.backing.pg_session import PostgresSession, flushed
from pequod_server.backing.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Field,
    Other,
    Relation,
    RowChange,
    Truncate,
    parse_message,
)
from pequod_server.backing.sql import quoted, quoted_table, table_parts
from pequod_server.backing.store import Change, Changes, Event, KeyRange, Progress, Reload
from pequod_server.backing.values import Cell, compose

#: How often the database is told how far the feed is, and asked whether it is still there.
_CONFIRM_S: Final = 0.05
_PING_S: Final = 1.0
#: How often it is looked whether a commit is visible.
_UNSEEN_S: Final = 0.01


async def slot_feed(session: PostgresSession, since: int | None) -> AsyncGenerator[Event, None]:
    """Yield what the slot tells after ``since``; None starts it anew."""
    facts, fingerprint = await session.check_installed()
    is_altered = session.fingerprint not in {None, fingerprint}
    session.fingerprint = fingerprint
    start, lost = await _place(session, since)
    if since is not None and is_altered and not lost:
        lost = "the tables or the publication have changed"
    yield Reload(start, session.everything, lost) if lost else Progress(start)
    decoder = _Decoder(session, facts, start)
    async with _streaming(session, start) as stream:
        checks = asyncio.get_running_loop().time()
        position = start
        while not session.closing.is_set():
            message = stream.read()
            if message is None:
                if decoder.is_between and stream.wal_end > position:
                    position = stream.wal_end
                    yield Progress(position)
                session.health.fresh(0 if stream.is_heard else None)
                stream.confirm(position)
                await stream.wait()
                now = asyncio.get_running_loop().time()
                if now - checks >= _PING_S:
                    checks = now
                    if (await session.check_installed())[1] != fingerprint:
                        raise FeedBrokenError("the tables or the publication have changed", is_lost=True)
                    yield Progress(position, await session.seen())
                continue
            for event in await decoder.events(message):
                position = event.position
                yield event
                stream.confirm_soon(position)


async def _place(session: PostgresSession, since: int | None) -> tuple[int, str]:
    """Return where the slot starts, and why changes before that are lost, if they are."""
    async with session.connection() as connection:
        slot = await connection.fetchrow(
            "SELECT plugin, active, wal_status, database = current_database() AS is_here, "
            "(confirmed_flush_lsn - '0/0')::bigint AS confirmed FROM pg_replication_slots WHERE slot_name = $1",
            session.feed_name,
        )
        if slot is not None and (slot["plugin"] != "pgoutput" or not slot["is_here"]):
            raise SchemaError(session.name, [f"the slot {session.feed_name} is somebody else's; choose another name"])
        if slot is not None and slot["active"]:
            raise BackingUnavailableError(
                session.name, f"the slot {session.feed_name} is in use; give each server a slot of its own"
            )
        lost = ""
        if slot is None:
            lost = "the slot is gone"
        elif slot["wal_status"] == "lost":
            lost = "the slot fell behind further than max_slot_wal_keep_size and is invalid"
        elif since is not None and since < slot["confirmed"]:
            lost = f"the slot has passed {since} already"
        elif since is not None and since > await flushed(connection):
            lost = f"the log of this database has not come to {since}"
        if since is not None and not lost:
            return since, ""
        # What is not wanted or not usable any more is made anew. Creation waits for transactions that are under
        # way, so that a load either sees a transaction or is followed by it.
        if slot is not None:
            await connection.execute("SELECT pg_drop_replication_slot($1)", session.feed_name)
        try:
            start: int = await connection.fetchval(
                "SELECT (lsn - '0/0')::bigint FROM pg_create_logical_replication_slot($1, 'pgoutput')",
                session.feed_name,
            )
        except TimeoutError as error:
            raise BackingUnavailableError(
                session.name,
                "the slot cannot be made while transactions from before are open; pg_stat_activity shows them",
            ) from error
        return start, "" if since is None else lost


class _Stream:
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
        if now - self._pinged >= _PING_S:
            self._pinged = now
            self._send(reply=True)
        elif self._wanted > self._confirmed and now - self._confirmed_at >= _CONFIRM_S:
            self._send(reply=False)
        if now - self._heard > self._session.timeout_s:
            raise BackingUnavailableError(self._session.name, f"no sign of life for {self._session.timeout_s:g} s")

    async def wait(self) -> None:
        """Wait for a message, or until it is time to say something."""
        wait_s = _CONFIRM_S if self._wanted > self._confirmed else _PING_S / 2
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
async def _streaming(session: PostgresSession, start: int) -> AsyncIterator[_Stream]:
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
    stream = _Stream(session, cursor, start)
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


@dataclass(slots=True)
class _Watched:
    """A relation of the stream and the mappings that read it."""

    mappings: tuple[Mapping, ...]
    columns: tuple[str, ...]


@dataclass(slots=True)
class _Decoder:
    """Turns the messages of a stream into events, one for each commit."""

    session: PostgresSession
    facts: Facts
    #: The end of the last commit.
    position: int
    transaction: int | None = None
    #: Changes of the open transaction in order; the last of a key counts.
    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    #: Rows that are mapped if they meet a condition, by mapping: key, value, and the row as JSON would hold it.
    judged: dict[int, dict[bytes, tuple[bytes, dict[str, Field]]]] = field(default_factory=dict)
    reloads: list[KeyRange] = field(default_factory=list)
    relations: dict[int, _Watched] = field(default_factory=dict)

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open."""
        return self.transaction is None

    async def events(self, data: bytes) -> list[Event]:
        """Return what the message completes: the changes of a commit, and what has to be read again after it."""
        match parse_message(data):
            case Begin(transaction):
                self.transaction = transaction
            case Relation() as relation:
                self._meet(relation)
            case RowChange() as change:
                self._note(change)
            case Truncate(oids):
                for oid in oids:
                    for mapping in self.relations[oid].mappings if oid in self.relations else ():
                        self.reloads.append(KeyRange(mapping.first, mapping.last))
            case Commit(end):
                assert self.transaction is not None, "a commit follows its begin"
                await self._judge()
                changes = tuple(Change(key, value) for key, value in self.changes.items())
                reloads = tuple(self.reloads)
                stamp, self.transaction = self.transaction, None
                self.changes, self.reloads = {}, []
                events: list[Event] = []
                if reloads:
                    # Only the last event of a commit says that it is over.
                    reached = self.position if changes else end
                    await self._wait_until_seen(Changes(end, stamp, ()))
                    events.append(
                        Reload(reached, reloads, "a table was truncated, or a change did not tell the whole row")
                    )
                if changes:
                    events.append(Changes(end, stamp, changes, are_seen=False))
                self.position = end
                return events or [Progress(end)]
            case Other():
                pass
        return []

    def _meet(self, relation: Relation) -> None:
        mappings = tuple(mapping for mapping in self.session.mappings if self.facts[mapping.table].oid == relation.oid)
        self.relations[relation.oid] = _Watched(mappings, relation.columns)
        identity = {name for name, key in zip(relation.columns, relation.is_identity, strict=True) if key}
        for mapping in mappings:
            missing = set(mapping.columns) - set(relation.columns)
            missing |= {slot.name for slot in mapping.slots} - identity
            if missing:
                raise FeedBrokenError(
                    f"{mapping.table} was altered: {', '.join(sorted(missing))} is gone, or not told of old rows",
                    is_lost=True,
                )

    def _note(self, change: RowChange) -> None:
        watched = self.relations.get(change.oid)
        if watched is None:
            return
        old = None if change.old is None else dict(zip(watched.columns, change.old, strict=True))
        new = None if change.new is None else dict(zip(watched.columns, change.new, strict=True))
        for mapping in watched.mappings:
            if old is not None:
                key = self._key(mapping, old)
                if key is not None:
                    self._set(mapping, key, None)
            if new is not None:
                self._note_new(mapping, new, old)

    def _note_new(self, mapping: Mapping, new: dict[str, Field], old: dict[str, Field] | None) -> None:
        if old is not None:
            # Old rows are sent whole with REPLICA IDENTITY FULL, and large values that stayed are in them.
            new = {name: old.get(name, UNCHANGED) if value is UNCHANGED else value for name, value in new.items()}
        key = self._key(mapping, new)
        if key is None:
            return
        if any(new[name] is UNCHANGED for name in (new if mapping.condition else mapping.value)):
            self.reloads.append(KeyRange(key, key + b"\0"))
            self._drop(mapping, key)
            return
        columns = self.facts[mapping.table].columns
        cells = [Cell(_text(new[name]), columns[name].kind) for name in mapping.value]
        value = compose(mapping.value, mapping.as_object, cells)
        if mapping.condition is None:
            self.changes[key] = value
        else:
            self.judged.setdefault(self.session.mappings.index(mapping), {})[key] = (value, new)

    def _set(self, mapping: Mapping, key: bytes, value: bytes | None) -> None:
        self._drop(mapping, key)
        self.changes[key] = value

    def _drop(self, mapping: Mapping, key: bytes) -> None:
        self.changes.pop(key, None)
        self.judged.get(self.session.mappings.index(mapping), {}).pop(key, None)

    def _key(self, mapping: Mapping, row: dict[str, Field]) -> bytes | None:
        if any(row[slot.name] is UNCHANGED for slot in mapping.slots):
            self.reloads.append(KeyRange(mapping.first, mapping.last))
            return None
        try:
            return mapping.key({slot.name: _text(row[slot.name]) for slot in mapping.slots})
        except PackError as error:
            self.session.health.unpackable(error)
            return None

    async def _wait_until_seen(self, changes: Changes) -> None:
        """Wait until reads see a commit that is logged: what is read again is not to be what was there before it."""
        while not (await self.session.seen()).covers(changes):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(_UNSEEN_S)

    async def _judge(self) -> None:
        """Ask the database which of the new rows meet the conditions of their mappings."""
        for number, rows in self.judged.items():
            mapping = self.session.mappings[number]
            table = quoted_table(mapping.table)
            alias = quoted(table_parts(mapping.table)[1])
            async with self.session.connection() as connection:
                verdicts = await connection.fetch(
                    f"SELECT coalesce(({mapping.condition}), false) "
                    f"FROM ROWS FROM (jsonb_populate_recordset(NULL::{table}, $1::text::jsonb)) AS {alias}",
                    json.dumps([row for _, row in rows.values()]),
                )
            for (key, (value, _)), (is_met,) in zip(rows.items(), verdicts, strict=True):
                self.changes[key] = value if is_met else None
        self.judged.clear()


def _text(value: Field) -> str | None:
    assert value is None or isinstance(value, str), "large values are seen to before"
    return value
