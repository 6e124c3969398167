"""Changes from a replication slot: durable, in commit order, resumed at a position.

The replication slot keeps the log from the position that the feed has confirmed, so nothing is lost while a server is
away, up to the limit that the database sets (`max_slot_wal_keep_size`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import asyncpg

from pequod_server.backing.errors import BackingUnavailableError, SchemaError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.postgres.decoder import Decoder
from pequod_server.backing.postgres.history import history, place
from pequod_server.backing.postgres.holder import pass_if_free
from pequod_server.backing.postgres.lookout import looking_out
from pequod_server.backing.postgres.schema import Connection, Facts
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.postgres.stream import SenderError, streaming
from pequod_server.backing.store import Event, IsWanted, Progress, Reload
from pequod_server.backing.turns import Turns

#: When the feed has broken this often at one commit, everything is read again.
_ATTEMPTS: Final = 3


async def slot_feed(session: PostgresSession, since: int | None, is_wanted: IsWanted) -> AsyncGenerator[Event, None]:
    """Yield the events of the replication slot after ``since``; None starts it anew."""
    facts, fingerprint, first = await _begin(session, since)
    yield first
    async with (
        streaming(session, first.position) as stream,
        looking_out(session, fingerprint, stream.process_id, stream.wake) as lookout,
    ):
        session.on_hurry = stream.wake
        decoder = Decoder(session, facts, lookout, first.position, is_wanted)
        position = first.position
        turns = Turns()
        try:
            while not session.closing.is_set():
                message = stream.read()
                if message is None:
                    decoder.pass_by(stream.wal_end)
                elif not decoder.note(message):
                    for event in await decoder.events(message):
                        position = event.position
                        session.broken_commits = 0
                        yield event
                if message is not None and not turns.are_due():
                    continue
                if decoder.position > position:
                    position = decoder.position
                    yield Progress(position)
                lookout.passed(position)
                answer = lookout.take()
                if answer is not None:
                    if answer.is_at_work:
                        stream.excuse_silence()
                    yield Progress(position, answer.seen)
                stream.confirm(position, is_asked=lookout.is_behind)
                if message is None:
                    stream.refuse_silence()
                    await stream.wait()
                    turns = Turns()
                else:
                    await turns.give()
        except BackingUnavailableError as error:
            # psycopg2 may have confirmed a position by itself, and the replication slot continues from there.
            if decoder.position > position:
                yield Progress(decoder.position)
            _give_up(session, error, is_open=decoder.is_open)
            raise


def _give_up(session: PostgresSession, error: BackingUnavailableError, *, is_open: bool) -> None:
    """Raise FeedBrokenError if the feed has broken too often at one commit."""
    session.broken_commits += is_open or isinstance(error, SenderError)
    if session.broken_commits >= _ATTEMPTS:
        session.broken_commits = 0
        raise FeedBrokenError(f"{error}; it has broken {_ATTEMPTS} times at one commit", is_lost=True) from error


async def _begin(session: PostgresSession, since: int | None) -> tuple[Facts, str, Progress | Reload]:
    """Return the facts about the tables, their fingerprint, and the first event."""
    facts, fingerprint = await session.check_installed()
    is_altered = session.fingerprint not in {None, fingerprint}
    session.fingerprint = fingerprint
    start, lost = await _place(session, since)
    if since is not None and is_altered and not lost:
        # A standby that took over may lack commits that its primary delivered, whatever replication slots it has.
        lost = "the tables, the publication or the timeline of the log have changed"
    async with session.connection() as connection:
        session.history = await history(connection, session.dsn, session.timeout_s)
    if lost:
        return facts, fingerprint, Reload(start, session.everything, lost, session.history)
    return facts, fingerprint, Progress(start, history=session.history)


async def _place(session: PostgresSession, since: int | None) -> tuple[int, str]:
    """Return the position at which the replication slot starts, and why changes before it are lost, if they are."""
    async with session.connection() as connection:
        slot = await _slot(session, connection)
        if slot is not None and (slot["plugin"] != "pgoutput" or not slot["is_here"]):
            raise SchemaError(
                session.name,
                [f"the replication slot {session.feed_name} is of another program; choose another name"],
            )
        if slot is not None and slot["active"]:
            await pass_if_free(session, connection)
            slot = await _slot(session, connection)
        lost = ""
        if slot is None:
            lost = "the replication slot is gone"
        elif slot["wal_status"] == "lost":
            lost = "the replication slot fell behind further than max_slot_wal_keep_size and is invalid"
        elif since is not None and since < slot["confirmed"]:
            lost = f"the replication slot has passed {since} already"
        elif since is not None and since > (await place(connection)).position:
            lost = f"the log of this database has not come to {since}"
        if since is not None and not lost:
            return since, ""
        # An unusable or unwanted replication slot is made again. Making one waits for transactions that are under way,
        # so that a load either sees a transaction or is followed by it.
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
                "the replication slot cannot be made while transactions from before are open; "
                "pg_stat_activity shows them",
            ) from error
        return start, "" if since is None else lost


async def _slot(session: PostgresSession, connection: Connection) -> asyncpg.Record | None:
    """Return the row of the database about the slot, None if there is no such slot."""
    return await connection.fetchrow(
        "SELECT plugin, active, wal_status, database = current_database() AS is_here, "
        "(confirmed_flush_lsn - '0/0')::bigint AS confirmed FROM pg_replication_slots WHERE slot_name = $1",
        session.feed_name,
    )
