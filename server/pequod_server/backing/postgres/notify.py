"""Changes from triggers that NOTIFY: they send keys only, and the feed reads their present values.

Notifications come in commit order, and never before their commit is visible, but perhaps long after. Reads of this
store are numbered in the order of their snapshots; the numbers say whether a load has seen the changes of a batch.
Notifications are lost while the connection is down: then everything is read again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from pequod_server.backing.errors import BackingUnavailableError, PackError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.noted import Noted
from pequod_server.backing.postgres.history import history, place
from pequod_server.backing.postgres.install import EVERYTHING
from pequod_server.backing.postgres.session import PostgresSession, SnapshotHorizon, keys_as_ranges, told
from pequod_server.backing.store import Changes, Event, IsWanted, KeyRange, Progress, Reload, RowChange
from pequod_server.backing.turns import Turns

#: How often the feed asks for the position of the database, and checks that the triggers exist.
_PROGRESS_S: Final = 0.1
_CHECK_S: Final = 1.0
#: Notifications that wait in the database for its slowest listener; when the queue is full, writers fail.
_QUEUE_USAGE_MAX: Final = 0.5
#: Characters of notes that are kept until they are read: keys of a million rows or so.
_NOTES_SIZE_MAX: Final = 32 << 20
#: The oldest transaction that is open, and the next one that is to begin.
_TRANSACTIONS: Final = """
SELECT pg_snapshot_xmin(now)::text::bigint, pg_snapshot_xmax(now)::text::bigint FROM pg_current_snapshot() AS now
"""
_NOTIFY_SELF: Final = """
SELECT pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM pg_notify($1, '')
"""
_MANY: Final = "a table was truncated, or more rows changed than are worth telling apart"


async def notify_feed(session: PostgresSession, since: int | None, is_wanted: IsWanted) -> AsyncGenerator[Event, None]:
    """Yield the events of triggers from now on; after ``since`` everything has to be read again."""
    async with _listening(session) as listener:
        # The fingerprint is read after the feed listens: if a trigger goes later, the fingerprint changes.
        _, fingerprint = await session.check_installed()
        async with session.connection() as connection:
            session.history = await history(connection, session.dsn, session.timeout_s)
        position = await listener.progress()
        if since is None:
            yield Progress(position, history=session.history)
        else:
            reason = "notifications are not kept for a feed that was away"
            yield Reload(position, session.everything, reason, session.history)
        checked = asyncio.get_running_loop().time()
        while not session.closing.is_set():
            asked_s = session.health.now()
            event = await _event(session, listener, is_wanted)
            yield event
            session.health.stands(asked_s, 0)
            if isinstance(event, Reload):
                # A trigger may have failed, for a reason that the status should show.
                checked = 0.0
            if asyncio.get_running_loop().time() - checked >= _CHECK_S:
                checked = asyncio.get_running_loop().time()
                await listener.check_queue()
                if (await session.check_installed())[1] != fingerprint:
                    raise FeedBrokenError("the tables or their triggers have changed", is_lost=True)
            await listener.wait()


async def _event(session: PostgresSession, listener: _Listener, is_wanted: IsWanted) -> Event:
    """Return the changes of the noted keys, whole commits in one event: the database as of one snapshot."""
    position = await listener.progress()
    if listener.is_quiet:
        seen = await listener.seen()
        if listener.is_quiet:
            return Progress(_sure(position, seen))
    notes = listener.take()
    noted, failure = await _noted(session, notes, is_wanted)

    async def choose() -> list[KeyRange]:
        # The snapshot may see commits whose notes came after the others; and later ones, which are noted again.
        nonlocal noted, failure
        await listener.progress()
        late = listener.take()
        noted, failure = await _noted(session, [*notes, *late], is_wanted)
        listener.put_back(late)
        return [] if noted.ranges else keys_as_ranges(noted.keys)

    try:
        rows, moment = await session.read_then(choose)
    except BackingUnavailableError as error:
        # The notes are taken already and would be lost.
        raise FeedBrokenError(str(error), is_lost=True) from error
    position = _sure(position, moment.snapshot)
    if ranges := noted.ranges:
        return Reload(position, ranges, failure or _MANY)
    keys = noted.keys
    if not keys:
        return Progress(position)
    changes = tuple([RowChange(key, rows.get(key)) for key in keys])
    return Changes(position, moment.number, changes, shown=moment.snapshot.position)


def _sure(position: int, seen: SnapshotHorizon) -> int:
    """Return the position up to which a snapshot that was taken after the log had come to ``position`` sees all.

    A commit is in the log before it is seen, long before if it waits for a standby. While a transaction is open, the
    last commit in the log may be its own; callers that wait for that commit know a later position, or this one.
    """
    return position - 1 if seen.running else position


async def _noted(session: PostgresSession, notes: list[str], is_wanted: IsWanted) -> tuple[Noted, str]:
    """Return the keys of notes, and the reason why a trigger failed; empty if none did."""
    failure = ""
    by_identity = {mapping.identity: mapping for mapping in session.mappings}
    noted = Noted(session.mappings, is_wanted)
    turns = Turns()
    for note in notes:
        if turns.are_due():
            await turns.give()
        identity, _, rest = note.partition(" ")
        mapping = by_identity.get(identity)
        if mapping is None:
            continue
        if rest.startswith(EVERYTHING):
            noted.give_up(identity)
            reason = rest.removeprefix(EVERYTHING).strip()
            if reason:
                failure = f"the trigger of {mapping.pattern} on {mapping.table} failed: {reason}"
            continue
        for texts in json.loads(rest):
            try:
                noted.add(identity, mapping.key(texts))
            except PackError as error:
                session.health.unpackable(error)
    return noted, failure


class _Listener:
    """A connection that listens."""

    def __init__(self, session: PostgresSession, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._session = session
        self._connection = connection
        #: In their order, each once.
        self._notes: dict[str, None] = {}
        self._notes_size = 0
        self._woken = asyncio.Event()
        #: Of the last notification of this connection's own, on a channel of its own, if all transactions before it had
        #: ended; one that had not may have committed since, under a number that is less.
        self._own_xid: int | None = None
        self._own_channel = f"pequod_{secrets.token_hex(8)}"

    async def start(self) -> None:
        """Listen."""
        self._connection.add_termination_listener(lambda _: self.wake())
        async with told(self._session.name):
            await self._connection.add_listener(self._session.feed_name, self._note)
            await self._connection.add_listener(self._own_channel, lambda *_: None)

    async def progress(self) -> int:
        """Return a position; everything that was committed before it has been noted when this returns.

        A commit is in the log, and is seen, a moment before it signals its notifications: on a busy machine the process
        may stop for long in between. So the connection notifies as well. Commits that notify go one after the other,
        and this one has the database send all notifications of those before it before it ends the statement.
        """
        try:
            async with told(self._session.name):
                position = (await place(self._connection)).position
                transactions = await self._connection.fetchrow(_TRANSACTIONS)
                assert transactions is not None, "it is one row"
                running, next_xid = transactions
                if self._own_xid is None or not running == next_xid == self._own_xid + 1:
                    # There was a transaction after the last one of ours; an idle database is left alone.
                    notified = await self._connection.fetchrow(_NOTIFY_SELF, self._own_channel)
                    assert notified is not None, "it is one row"
                    own_xid, oldest = notified
                    self._own_xid = own_xid if own_xid == oldest else None
                return position
        except BackingUnavailableError as error:
            raise FeedBrokenError(str(error), is_lost=True) from error

    async def seen(self) -> SnapshotHorizon:
        """Return the horizon of a snapshot that sees nothing beyond the commits that are noted when this returns."""
        try:
            async with told(self._session.name):
                return SnapshotHorizon.parse(await self._connection.fetchval("SELECT pg_current_snapshot()::text"), 0)
        except BackingUnavailableError as error:
            raise FeedBrokenError(str(error), is_lost=True) from error

    async def check_queue(self) -> None:
        """Check that the database's queue of notifications is not filling up.

        Raises:
            FeedBrokenError: It is, because another listener does not read.
        """
        async with told(self._session.name):
            usage = float(await self._connection.fetchval("SELECT pg_notification_queue_usage()"))
        if usage > _QUEUE_USAGE_MAX:
            raise FeedBrokenError(
                f"the notification queue is {usage:.0%} full, and writers fail when it is full: a session that "
                "listens is stuck in a transaction; look for it in pg_stat_activity",
                is_lost=True,
            )

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was noted since the last call of `take`."""
        return not self._notes

    def put_back(self, notes: list[str]) -> None:
        """Note them once more."""
        for note in notes:
            self._add(note)

    def take(self) -> list[str]:
        """Return the notes since the last call."""
        notes, self._notes, self._notes_size = self._notes, {}, 0
        self._woken.clear()
        return list(notes)

    async def wait(self) -> None:
        """Wait for a note, for a limited time."""
        closing = asyncio.ensure_future(self._session.closing.wait())
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({closing, woken}, timeout=_PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing.cancel()
            woken.cancel()

    def _note(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._add(str(payload))

    def _add(self, note: str) -> None:
        if self._notes_size + len(note) > _NOTES_SIZE_MAX:
            # The keys would take more memory than that.
            self._notes = dict.fromkeys(map(_whole, self._notes))
            self._notes_size = 0
            note = _whole(note)
        if note not in self._notes:
            self._notes[note] = None
            self._notes_size += len(note)
        self._woken.set()

    def wake(self) -> None:
        """End the wait."""
        self._woken.set()


def _whole(note: str) -> str:
    """Return a note that has the pattern of another note read again."""
    return f"{note.partition(' ')[0]} {EVERYTHING}"


@asynccontextmanager
async def _listening(session: PostgresSession) -> AsyncIterator[_Listener]:
    connection = await session.open_alone()
    try:
        listener = _Listener(session, connection)
        session.on_hurry = listener.wake
        await listener.start()
        yield listener
    finally:
        connection.terminate()
