"""The questions that the feed of a replication slot asks the database beside the stream, over a second connection.

A keepalive message on the stream does not show how fresh the cache is: the database sends it even while it works on a
large commit. So the feed asks how far the log is, and is as fresh as the last such position that it has passed:

    asked          at 10:00:00, the log is at 500     at 10:00:01, it is at 900
    the feed       at 480           500: all of 10:00:00 is known       700: still as of 10:00:00       900 ...
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.postgres.install import check_installed
from pequod_server.backing.postgres.schema import check_schema
from pequod_server.backing.postgres.session import PostgresSession, SnapshotHorizon, told
from pequod_server.backing.turns import ended

ASK_S: Final = 1.0
#: A sender that waits for the log or for its client is idle; one that reads or decodes waits for neither.
_ASK: Final = """
SELECT pg_current_snapshot()::text AS seen, (pg_current_wal_flush_lsn() - '0/0')::bigint AS position,
       EXISTS (SELECT FROM pg_stat_activity
               WHERE pid = $1 AND coalesce(wait_event_type, '') NOT IN ('Activity', 'Client')) AS is_at_work
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of the database at one moment."""

    #: When it was asked, in seconds since 1970.
    asked_s: float
    #: The position of its log.
    position: int
    seen: SnapshotHorizon
    #: Whether the process that streams the replication slot was busy.
    is_at_work: bool


class Lookout:
    """Asks the database once a second.

    Args:
        fingerprint: The fingerprint of the tables and triggers that the feed needs; the feed ends when it changes.
        sender: The database's process that streams the slot.
        wake: Called at each answer, and when no more will come.

    Invariants:
        1. ``_asked`` is in the order of time, and so in that of positions.
    """

    def __init__(
        self,
        session: PostgresSession,
        connection: asyncpg.Connection[asyncpg.Record],
        fingerprint: str,
        sender: int,
        wake: Callable[[], None],
    ) -> None:
        self._session = session
        self._connection = connection
        self._fingerprint = fingerprint
        self._sender = sender
        self._wake = wake
        self._lock = asyncio.Lock()
        #: Answers that the feed has not passed.
        self._asked: deque[Answer] = deque()
        self._position = 0
        self._new: Answer | None = None
        self._error: Exception | None = None

    @property
    def seen(self) -> SnapshotHorizon | None:
        """The changes that every read sees that begins from now on, by the answers so far; it may see more."""
        return self._asked[-1].seen if self._asked else None

    @property
    def is_behind(self) -> bool:
        """Whether the feed has not passed the last answer."""
        return bool(self._asked) and self._asked[-1].position > self._position

    def take(self) -> Answer | None:
        """Return the last answer, unless it was taken before.

        Raises:
            BackingUnavailableError: The database does not answer any more.
            SchemaError: It no longer has what the feed needs.
            FeedBrokenError: What the feed needs was changed.
        """
        if self._error is not None:
            raise self._error
        answer, self._new = self._new, None
        return answer

    def passed(self, position: int) -> None:
        """Note that every change up to a position has been delivered and processed."""
        self._position = max(self._position, position)
        fresh_s = None
        # The last answer stays: it says how far the feed has to go.
        while self._asked and self._asked[0].position <= self._position:
            fresh_s = self._asked[0].asked_s
            if len(self._asked) == 1:
                break
            self._asked.popleft()
        lag = max(0, self._asked[-1].position - self._position) if self._asked else None
        self._session.health.stands(fresh_s, lag)

    async def fetch(self, query: str, *parameters: object) -> Sequence[asyncpg.Record]:
        """Run another statement over the same connection."""
        async with told(self._session.name), self._lock:
            return await self._connection.fetch(query, *parameters)

    async def ask(self) -> Answer:
        """Ask for the state of the database."""
        asked_s = self._session.health.now()
        (row,) = await self.fetch(_ASK, self._sender)
        position = row["position"]
        return Answer(asked_s, position, SnapshotHorizon.parse(row["seen"], position), row["is_at_work"])

    async def run(self) -> None:
        """Ask once a second while the database answers."""
        try:
            while True:
                self._new = await self.ask()
                self._asked.append(self._new)
                self._wake()
                await self._check()
                await asyncio.sleep(ASK_S)
        except Exception as error:
            self._error = error
            # Loads read the facts about the tables again from here on, too.
            self._session.forget_facts()
            self._wake()

    async def _check(self) -> None:
        session = self._session
        async with told(session.name), self._lock:
            facts = await check_schema(self._connection, session.name, session.mappings)
            fingerprint = await check_installed(
                self._connection, session.name, session.mode, session.feed_name, session.mappings, facts
            )
        if fingerprint != self._fingerprint:
            raise FeedBrokenError("the tables, the publication or the timeline of the log have changed", is_lost=True)


@asynccontextmanager
async def looking_out(
    session: PostgresSession, fingerprint: str, sender: int, wake: Callable[[], None]
) -> AsyncIterator[Lookout]:
    """Ask the database once a second while the context is open."""
    connection: Any = await session.open_alone()
    lookout = Lookout(session, connection, fingerprint, sender, wake)
    running = asyncio.create_task(lookout.run(), name="pequod database lookout")
    try:
        yield lookout
    finally:
        await ended([running])
        connection.terminate()
