"""The store of a simulated server: the protocol of `BackingStore`, over links to the simulated database.

A connection for each request and one for the feed. What is lost on the way is `BackingUnavailableError`; a feed that
was lost and comes back goes on where it was, or asks for a reload.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Final

from pequod_server.backing import (
    Added,
    Addition,
    BackingUnavailableError,
    Changes,
    ConditionalChange,
    History,
    KeyRange,
    Loaded,
    Mapping,
    Place,
    Progress,
    Reload,
    RowChange,
    Status,
    WrittenIf,
    WrittenTransaction,
)
from pequod_server.backing.health import Backoff, FeedBrokenError, Health, mended
from pequod_server.backing.store import Event, IsWanted, WrittenThrough, every_key
from pequod_server.once.parts import IdPage, IdPart

from pequod.engine.transacting import TransactionLimits
from pequod.errors import NotNumberError
from pequod.language.transactions import Transaction
from tests.simulation.database import DATABASE, PROGRESS_S, REQUEST_S
from tests.simulation.links import ConnectionLostError, Network

#: The tables of the database.
TABLES: Final = (b"s", b"p", b"q")
#: Names the database in tokens, where there is one.
HISTORY_NAME: Final = b"simu"
_EVERYTHING: Final = tuple(KeyRange(table + b"|", table + b"}") for table in TABLES)


class _Ids:
    """The request ids of the database."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    async def page(self, since: bytes) -> IdPage:
        """Return a page of them."""
        _, page = await self._store._ask(("ids", since))
        assert isinstance(page, IdPage)
        return page

    async def take(self, parts: Sequence[IdPart]) -> None:
        """Remember some."""
        await self._store._ask(("take ids", tuple(parts)))


class SimulatedStore:
    """A database over a network.

    Args:
        at_event: Called right before the server takes in an event of the feed, and right after it.
        database: The name of the database's machine.
        history_name: Names the database in tokens.

    Invariants:
        1. ``timelines`` are those of which the engine's rows may be: one, and two while a reload is taken in.
    """

    def __init__(
        self,
        network: Network,
        machine: str,
        at_event: Callable[[], None],
        database: str = DATABASE,
        history_name: bytes = HISTORY_NAME,
    ) -> None:
        self._database = database
        self._history_name = history_name
        self.mappings: tuple[Mapping, ...] = ()
        self.timelines: tuple[int, ...] = (0,)
        self._network = network
        self._machine = machine
        self._at_event = at_event
        self._health = Health(lambda: time.time())  # noqa: PLW0108 - the simulation replaces it later
        self._closing = asyncio.Event()
        self._feed_timeline = 0
        self._is_wanted: IsWanted = every_key
        self.request_ids = _Ids(self)

    @property
    def status(self) -> Status:
        """The state of the feed."""
        return self._health.status

    async def check(self) -> list[str]:
        """Return no advice."""
        return []

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges."""
        timeline, loaded = await self._ask(("load", tuple(ranges)))
        assert isinstance(loaded, Loaded)
        return Loaded(loaded.rows, loaded.horizon, timeline + 1)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes in one transaction."""
        timeline, (position, found) = await self._ask(("write", tuple(changes)))
        return WrittenThrough(Place(timeline + 1, position), found)

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write a change if its condition holds."""
        timeline, (position, outcome) = await self._ask(("write_if", change))
        return WrittenIf(Place(timeline + 1, position), outcome)

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction."""
        timeline, (position, done) = await self._ask(("transact", transaction, limits))
        return WrittenTransaction(Place(timeline + 1, position), done)

    async def add(self, addition: Addition) -> Added:
        """Add to a value."""
        timeline, (position, total) = await self._ask(("add", addition))
        if total is None:
            raise NotNumberError(addition.key)
        return Added(Place(timeline + 1, position), total)

    async def position(self) -> Place:
        """Return the position of the last commit."""
        timeline, position = await self._ask(("position",))
        return Place(timeline + 1, position)

    async def latest(self) -> Place:
        """Return the position of a commit that is made for it."""
        timeline, position = await self._ask(("latest",))
        return Place(timeline + 1, position)

    def hurry(self, position: int) -> None:
        """Do nothing: the feed comes as fast as its link."""

    async def mark(self) -> str:
        """Return the name of the database."""
        return self._database

    async def knows(self, mark: str) -> bool:
        """Return whether it is the name of the database."""
        return mark == self._database

    async def close(self) -> None:
        """End the feed."""
        self._closing.set()
        self._health.closed()

    async def _ask(self, message: tuple[object, ...]) -> Any:
        end = self._network.connect(self._machine, self._database)
        try:
            end.send(message)
            return await end.receive(REQUEST_S)
        except ConnectionLostError as error:
            raise BackingUnavailableError(self._database, str(error)) from error
        finally:
            end.close()

    async def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events after a position."""
        self._is_wanted = is_wanted
        backoff = Backoff(first_s=0.02, most_s=1.0)
        async for event in mended(self._session, since, _EVERYTHING, self._health, backoff, self._closing):
            if isinstance(event, Reload):
                self.timelines = (*self.timelines, self._feed_timeline)
            self._at_event()
            yield event
            self.timelines = (self._feed_timeline,)
            self._at_event()

    async def _session(self, since: int | None) -> AsyncGenerator[Event, None]:
        end = self._network.connect(self._machine, self._database)
        try:
            end.send(("feed", since, self._feed_timeline))
            while True:
                match await end.receive(4 * PROGRESS_S):
                    case ("lost", reason):
                        raise FeedBrokenError(reason, is_lost=True)
                    case ("stands", timeline, position, forks):
                        self._feed_timeline = timeline
                        # Databases count their timelines from 1 on, and these are counted from 0 on.
                        history = History(self._history_name, timeline + 1, dict(enumerate(forks[1:], 1)))
                        yield Progress(position, history=history)
                        self._health.stands(None)
                    case Changes() as event:
                        yield self._wanted(event)
                    case ("progress", Progress() as event, fresh_s):
                        yield event
                        self._health.stands(fresh_s, 0)
                    case message:
                        raise AssertionError(f"the feed does not know {message!r}")
        except ConnectionLostError as error:
            raise FeedBrokenError(str(error), is_lost=False) from error
        finally:
            end.close()

    def _wanted(self, event: Changes) -> Changes:
        """Leave out what is not loaded, as real stores do, if every later load sees it."""
        if not event.are_seen:
            return event
        wanted = tuple(change for change in event.changes if self._is_wanted(change.key))
        return Changes(event.position, event.stamp, wanted)
