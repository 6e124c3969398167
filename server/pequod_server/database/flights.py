"""The loads of one database: a range is in one flight, however many readers wait for it.

    [p|bob|] [p|liz|] [p|bob|] of many readers in one turn of the loop -> one flight, one statement a pattern

A reader that goes away takes nothing with it. The store is told which ranges the engine has forgotten since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from pequod.engine import Engine, Loadable, NextGroups, Range, SearchRange
from pequod.language.ranges import united
from pequod_server.backing import BackingStore, BackingUnavailableError, KeyRange, Loaded, Releasing
from pequod_server.backing.rows import Clip
from pequod_server.backing.searches import found_by
from pequod_server.database import prefetch
from pequod_server.database.arrivals import Refused
from pequod_server.database.followed import FEED
from pequod_server.database.intake import Intake
from pequod_server.wire.publishing import DATABASE, HOME

#: How often a load is tried that changes of its ranges get in the way of.
ROUNDS_MAX: Final = 64


class Below(Protocol):
    """The servers that have base data from this one, which stays subscribed to what they want."""

    def take_unwanted(self) -> list[KeyRange]:
        """Return the ranges that they have wanted, since the last time; some may be wanted still, or again."""
        ...

    def not_wanted(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        """Return the parts of ranges that none of them wants."""
        ...


class Flights:
    """Loads what reads lack of one database.

    Args:
        intake: Takes the rows into the engine.
        trouble: Returns why the feed does not stand yet.

    Invariants:
        1. ``_flights`` holds each range that is being loaded with the task that does it.
    """

    def __init__(self, engine: Engine, store: BackingStore, intake: Intake, trouble: Callable[[], str]) -> None:
        self._engine = engine
        self._store = store
        self._intake = intake
        self._trouble = trouble
        self._flights: dict[Loadable, asyncio.Task[Refused]] = {}
        #: The ranges that readers of this turn of the loop asked for, and the task that loads them in the next turn.
        self._wanted: list[Loadable] = []
        #: The groups that these readers will lack next.
        self._next_groups: dict[NextGroups, None] = {}
        #: The loads under way, with the groups that they prefetch.
        self._prefetched = prefetch.Loads()
        self._next_flight: asyncio.Task[Refused] | None = None
        #: Ranges that may not be loaded any more, although the store tells their changes.
        self._unneeded: list[Range] = []
        #: Returns those of the database that the engine has forgotten since the last time.
        self.forgotten: Callable[[], list[Range]] = engine.forgotten
        #: Servers behind this one; None: there are none.
        self.below: Below | None = None
        if isinstance(store, Releasing):
            engine.report_forgotten()

    @property
    def tasks(self) -> set[asyncio.Task[Refused]]:
        """The loads under way."""
        return set(self._flights.values())

    async def load(self, lacking: Iterable[Loadable], next_groups: Iterable[NextGroups] = ()) -> None:
        """Load what reads lack, together with all others that are asked for in this turn of the loop.

        Args:
            next_groups: What they will lack next, which the database may give with it.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the mapping needs.
            LimitExceededError: There is no memory for a range.
        """
        wanted, begun = tuple(lacking), len(self._wanted)
        waits: dict[asyncio.Task[Refused], None] = {}
        for one in wanted:
            flight = self._flights.get(one) or self._flights.get(self._intake.arriving(one))
            if flight is None:
                flight = self._flights[one] = self._boarding()
                self._wanted.append(one)
            waits[flight] = None
        if len(self._wanted) > begun:
            self._next_groups.update(dict.fromkeys(next_groups))
        for flight in waits:
            refused = await asyncio.shield(flight)
            for one in wanted:
                if one in refused:
                    for other in wanted:
                        if isinstance(other, SearchRange):
                            self._engine.release_found(other)
                        else:
                            self._engine.release(*other)
                    raise refused[one]

    def _boarding(self) -> asyncio.Task[Refused]:
        if self._next_flight is None:
            self._next_flight = asyncio.create_task(self._fly(), name="pequod load")
            # Readers may all be gone when it fails.
            self._next_flight.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._next_flight

    async def _fly(self) -> Refused:
        ranges, self._wanted, self._next_flight = self._wanted, [], None
        groups, self._next_groups = tuple(self._next_groups), {}
        # In case it fails, or there is no memory; those that are loaded then are not released.
        unneeded = ranges
        try:
            with self._prefetched.load(prefetch.Load(self._store, groups, self._intake.owned)) as load:
                refused = await self._load(ranges, load)
            unneeded = list(refused)
            return refused
        finally:
            if isinstance(self._store, Releasing):
                self._unneeded += [one for one in unneeded if not isinstance(one, SearchRange)]
            for one in ranges:
                del self._flights[one]

    async def _load(self, lacking: Sequence[Loadable], load: prefetch.Load) -> Refused:
        if self._intake.followed.failure:
            raise BackingUnavailableError(FEED, self._intake.followed.failure)
        if self._intake.followed.position is None:
            raise BackingUnavailableError(FEED, self._trouble())
        ranges = [KeyRange(*one) for one in lacking if not isinstance(one, SearchRange)]
        searches = [one for one in lacking if isinstance(one, SearchRange)]

        async def read(wanted: Sequence[KeyRange]) -> Loaded:
            return await (found_by(self._store, searches, wanted) if searches else load.read(wanted))

        for _ in range(ROUNDS_MAX):
            # A reader that waits for a range which is another database's by now asks again, and finds its owner.
            owned = [Range(one.first, one.last) for one in self._intake.owned(ranges) if one.last is not None]
            refused = await self._intake.load(owned, read, searches) if owned or searches else {}
            if refused is not None:
                return refused
        title = HOME if isinstance(self._store, Releasing) else DATABASE
        raise BackingUnavailableError(title, "its feed breaks faster than ranges are loaded")

    def release(self) -> None:
        """Tell the store which ranges are not loaded any more, if it wants to know."""
        if not isinstance(self._store, Releasing):
            return
        unneeded = united(
            [*self._unneeded, *self._prefetched.take_dropped(), *self.forgotten(), *self._unwanted_below()]
        )
        asked = [KeyRange(*one) for one in self._flights if not isinstance(one, SearchRange)]
        flying = Clip([*asked, *self._prefetched.coming])
        # These are asked about again once their loads have ended.
        self._unneeded = [one for one in unneeded if flying.touches(KeyRange(*one))]
        settled = [KeyRange(*one) for one in unneeded if not flying.touches(KeyRange(*one))]
        absent = self._intake.not_loaded(settled)
        if self.below is not None:
            # Of what they want, the changes have to go on coming, whether it is loaded here or not.
            absent = self.below.not_wanted(absent)
        if absent:
            self._prefetched.note_released(absent)
            self._store.release(absent)

    def _unwanted_below(self) -> list[Range]:
        found = [] if self.below is None else self.below.take_unwanted()
        return [Range(one.first, one.last) for one in found if one.last is not None]
