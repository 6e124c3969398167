"""A home that a move follows, as a compute does: rows of pages, and every change of them from there on.

    load [p|, p|m)      rows as of 40           the home tells the changes of the page from now on
    feed                42: p|bob = 7, 43: p|dan is gone
    take                {p|bob: 7, p|dan: None}          the last change of each key, in the order of these

A change holds a whole value, and all later ones of its key are told as well. So it may be applied to rows that show it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from pequod.cluster.servers import ServerEntry
from pequod.errors import BackingUnavailableError, PequodError
from pequod.language.deadlines import KEEP
from pequod_server.backing import History, KeyRange, Loaded, Place
from pequod_server.backing.store import Changes, Event, Reload
from pequod_server.backing.timed import deadline_of, is_due
from pequod_server.backing.turns import ended
from pequod_server.homes.compute.channel import PeerChannel
from pequod_server.homes.compute.events import PeerEvents
from pequod_server.homes.compute.session import PeerSession, SessionOverError

T = TypeVar("T")
Rows = list[tuple[bytes, bytes]]

#: A home that says nothing for this long is given up.
_SILENCE_S: Final = 5.0
_OWN_ID: Final = "cluster move"


class HomeAccess(Protocol):
    """The way of an operator to one home: it reads and writes there."""

    entry: ServerEntry
    channel: PeerChannel

    async def scan(self, first: bytes, last: bytes | None, limit: int | None = None) -> Rows:
        """Return the first rows of a range at the latest state."""
        ...

    async def close(self) -> None:
        """End connections."""
        ...


class FollowedHome:
    """One feed of a home.

    Args:
        name: The home, for people.

    Invariants:
        1. ``_told`` has the last change of each key that was told and not taken.
    """

    def __init__(self, channel: PeerChannel, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._session = PeerSession(channel, name, 1, clock, _SILENCE_S, _OWN_ID)
        self._events = PeerEvents(0, lambda: (KeyRange(b"", None),), None)
        self._told: dict[bytes, bytes | None] = {}
        self._history: History | None = None
        self._position = -1
        #: The last question that the home has answered, when nothing was left to tell.
        self._answered = 0
        self._news = asyncio.Event()
        self._failure: PequodError | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin the feed; return when it stands.

        Raises:
            PequodError: The home refuses it, or does not answer.
        """
        self._reading = asyncio.create_task(self._read(), name=f"pequod move follows {self._name}")
        await self._until(lambda: self._history is not None)

    @property
    def database(self) -> bytes:
        """The name of its database in tokens.

        Requires:
            `start` has returned.
        """
        assert self._history is not None
        return self._history.database

    async def load(self, page: KeyRange) -> Loaded:
        """Read a page, and have its changes told from there on."""
        return await self._run(self._session.load([page], ()))

    async def come_to_latest(self) -> None:
        """Wait until everything has been told that was committed before this call."""
        place = await self._run(self._session.position(latest=True))
        await self.come_to(place)

    async def come_to(self, place: Place) -> None:
        """Wait until everything up to a place has been told.

        Raises:
            BackingUnavailableError: The home does not come there: it is away, or its database has failed over.
        """
        asked = self._session.asked + 1
        self._session.hurry(place.position)
        await self._until(lambda: self._position >= place.position and self._answered >= asked)
        if self._history is not None and self._history.timeline != place.timeline:
            raise BackingUnavailableError(self._name, "its database has failed over")

    def take(self) -> list[tuple[bytes, bytes | None]]:
        """Return what was told since the last call: the last change of each key."""
        told, self._told = self._told, {}
        return [(key, lasting(value)) for key, value in told.items()]

    async def close(self) -> None:
        """End the feed."""
        if self._reading is not None:
            await ended((self._reading,))
        await self._session.end()

    async def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._session.run(call)
        except SessionOverError:
            raise self._failure or BackingUnavailableError(self._name, "the feed has ended") from None

    async def _until(self, is_there: Callable[[], bool]) -> None:
        while not is_there():
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        try:
            async for reply in self._session.replies(None, []):
                for event in self._events.of(reply):
                    self._take_in(event)
                if reply.answered:
                    self._answered = reply.answered
                self._news.set()
            reason = "the home has ended the feed"
            self._failure = BackingUnavailableError(self._name, reason)
        except PequodError as error:
            self._failure = error
        finally:
            self._news.set()
            # Calls under way end.
            await self._session.end()

    def _take_in(self, event: Event) -> None:
        if isinstance(event, Reload):
            raise BackingUnavailableError(self._name, f"changes may have been missed: {event.reason}")
        if isinstance(event, Changes):
            for key, value in event.changes:
                self._told.pop(key, None)
                self._told[key] = value
        elif event.history is not None:
            if self._history is not None and event.history != self._history:
                raise BackingUnavailableError(self._name, "its database has failed over")
            self._history = event.history
        self._position = max(self._position, event.position)


async def database_of(home: HomeAccess) -> bytes:
    """Return the name of a home's database in tokens, and close the home.

    Raises:
        PequodError: It does not answer, or refuses.
    """
    feed = FollowedHome(home.channel, home.entry.id)
    try:
        await feed.start()
        return feed.database
    finally:
        await feed.close()
        await home.close()


def lasting(value: bytes | None) -> bytes | None:
    """Return a value as another home is to have it: None if it is due."""
    if value is None or is_due(value):
        return None
    # A store without deadlines may show a value as it was written.
    return bytes(value) if deadline_of(value) == KEEP else value
