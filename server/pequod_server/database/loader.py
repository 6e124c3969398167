"""The engine and a database behind it: what reads lack is loaded, and every change of the database is taken in.

    load    [p|bob|] [p|liz|] [p|bob|] of many readers in one turn of the loop -> one flight, one statement a pattern
    feed    Changes -> engine.apply      Reload -> engine.forget      in the order of the database's commits
    put     store.write -> the feed has passed it -> acknowledged

A range is in one flight however many readers wait for it, and a reader that goes away takes nothing with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pequod.calls import BackingStatistics
from pequod.engine import Engine, Loadable, NextGroups, PequodError, Range, SearchRange
from pequod.language.ranges import united
from pequod_server.backing import (
    BackingStaleError,
    BackingStore,
    BackingUnavailableError,
    Backoff,
    Event,
    KeyRange,
    Loaded,
    Place,
    Releasing,
    RowChange,
    Status,
)
from pequod_server.backing.rows import Clip
from pequod_server.backing.searches import found_by
from pequod_server.database import prefetch
from pequod_server.database.arrivals import Refused
from pequod_server.database.feed_log import FeedLog
from pequod_server.database.followed import FEED, Followed, Reached
from pequod_server.database.gate import Gate, Gates
from pequod_server.database.intake import Intake, Tap

log = logging.getLogger("pequod.backing")

#: How often a load is tried that changes of its ranges get in the way of.
ROUNDS_MAX: Final = 64
#: How often the feed's state is looked at.
_LOOK_S: Final = 0.25


class Loader:
    """Keeps what an engine holds of a database in step with it.

    A range that the engine forgets is loaded again by the read that lacks it, and the intake drops changes of keys that
    are not loaded. A store that tells the changes of loaded ranges alone is told what was forgotten.

    Args:
        name: Tells it from the other databases behind the engine; empty if there are none.
        gates: The gates of all these databases.
        is_write_through: Puts go to the database; else they are refused.
        stale_max_s: Reads of backed ranges fail once the feed is older than this; 0 for no such bound.
        wait_s: How long the feed may take to stand at the start, or to pass a write.

    Invariants:
        1. ``_flights`` holds each range that is being loaded with the task that does it.
        2. The engine is changed by events in their order, and by loads, through the intake alone.
    """

    def __init__(
        self,
        engine: Engine,
        store: BackingStore,
        *,
        name: str = "",
        gates: Gates | None = None,
        is_write_through: bool = False,
        stale_max_s: float = 0.0,
        wait_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self.store = store
        self.name = name
        self.is_write_through = is_write_through
        self._stale_max_s = stale_max_s
        self._wait_s = wait_s
        self._clock = clock
        self._intake = Intake(engine, gates=gates, hurry=store.hurry, wait_s=wait_s)
        self.followed: Followed = self._intake.followed
        self.counters = self._intake.counters
        self._flights: dict[Loadable, asyncio.Task[Refused]] = {}
        #: The ranges that readers of this turn of the loop asked for, and the task that loads them in the next turn.
        self._wanted: list[Loadable] = []
        #: The groups that these readers will lack next.
        self._next_groups: dict[NextGroups, None] = {}
        #: The loads under way, with the groups that they prefetch.
        self._prefetched = prefetch.Loads()
        self._next_flight: asyncio.Task[Refused] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: Ranges that may not be loaded any more, although the store tells their changes.
        self._unneeded: list[Range] = []
        #: Returns those of the database that the engine has forgotten since the last time.
        self.forgotten: Callable[[], list[Range]] = engine.forgotten
        if isinstance(store, Releasing):
            engine.report_forgotten()
        #: Told each event once the engine has it.
        self.on_event: Callable[[Event], None] = lambda _: None
        #: The step that the start waits for now; empty before and afterwards.
        self._start_step = ""
        #: Why the database did not answer when it was begun with.
        self._unanswered = ""

    def tell(self, tap: Tap) -> None:
        """Give a tap each event of the feed once the engine has all of it."""
        self._intake.tap = tap

    @property
    def position(self) -> int | None:
        """How far the engine has taken in the feed; None until the feed stands."""
        return self.followed.position

    @property
    def status(self) -> Status:
        """The state of the feed."""
        return self.store.status

    @property
    def gate(self) -> Gate:
        """The gate at which reads of the database's rows wait while a commit is half applied."""
        return self._intake.gate

    def statistics(self) -> BackingStatistics:
        """Return the state of the database's feed, and counts of the requests to the database."""
        return self.counters.statistics(
            self.name,
            self.store.status,
            mode="write-through" if self.is_write_through else "write-around",
            position=self.position,
            age_s=self.age_s(),
            loaded_ranges=self._intake.loaded_range_count,
        )

    def own(self, ranges: Sequence[KeyRange] | None) -> None:
        """Note which keys the database owns from now on; see `Intake.own`."""
        self._intake.own(ranges)

    @property
    def one_at_a_time(self) -> asyncio.Lock:
        """Held while an event or a load is taken in."""
        return self._intake.one_at_a_time

    async def forget(self, ranges: Sequence[KeyRange]) -> None:
        """Forget what is loaded of ranges; see `Intake.forget`."""
        await self._intake.forget(ranges)

    @property
    def is_stale(self) -> bool:
        """Whether the feed is older than ``stale_max_s``."""
        return self._stale_max_s > 0 and self.age_s() > self._stale_max_s

    @property
    def start_step(self) -> str:
        """The step that the start waits for now; empty before and afterwards."""
        status = self.store.status
        if self._start_step and status.state == "down":
            return f"its feed of changes, which cannot begin: {status.error}"
        return self._start_step

    def age_s(self) -> float:
        """Return the time since the feed was known to be complete; before the first such time, since the start."""
        status = self.store.status
        return self._clock() - (status.since_s if status.fresh_s is None else status.fresh_s)

    def stale_error(self) -> BackingStaleError:
        """Return the error of reads while ``is_stale``."""
        return BackingStaleError(self.age_s(), self._stale_max_s, self.store.status.error)

    async def start(self, since: int | None = None) -> None:
        """Compare the mapping with the database, and wait until the feed stands.

        Args:
            since: What the engine has loaded already is as of this position: wait until it is as the database is.

        Raises:
            SchemaError: The database does not have what the mapping needs.
            BackingUnavailableError: It does not answer.
        """
        self._start_step = "an answer"
        for advice in await self.store.check():
            log.warning("advice about the database", extra={"advice": advice})
        self._tasks = [
            asyncio.create_task(self._follow(since), name="pequod database feed"),
            asyncio.create_task(self._look(), name="pequod database state"),
        ]
        try:
            self._start_step = "its feed of changes; a new replication slot waits for the transactions that are open"
            await self._wait(lambda: self.position is not None)
            if since is not None:
                self._start_step = "the changes since the snapshot"
                await self.caught_up()
        except BackingUnavailableError:
            await self.stop()
            raise
        self._start_step = ""
        log.info("following the database", extra={"position": self.position, "stale_max_s": self._stale_max_s})

    def begin(self) -> None:
        """Follow the database as soon as it answers; until then, what is to be loaded of it is unavailable."""
        self._tasks = [asyncio.create_task(self._begin(), name="pequod database feed")]

    async def _begin(self) -> None:
        backoff, failures = Backoff(), 0
        while True:
            try:
                for advice in await self.store.check():
                    log.warning("advice about the database", extra={"advice": advice, "database": self.name})
                break
            except PequodError as error:
                # A home may also refuse this server, until its operator has granted what is missing.
                if str(error) != self._unanswered:
                    log.error("the database cannot be followed yet", extra={"error": str(error)})  # noqa: TRY400 - the world's
                self._unanswered = str(error)
            failures += 1
            await asyncio.sleep(backoff.wait_s(failures))
        self._unanswered = ""
        self._tasks.append(asyncio.create_task(self._look(), name="pequod database state"))
        await self._follow(None)

    async def caught_up(self) -> None:
        """Wait until the cache has everything that is in the database now, for as long as it gets on."""
        target = await self.store.position()
        while True:
            before = self.position
            try:
                return await self._wait(lambda: self._has(target))
            except BackingUnavailableError:
                if self.followed.failure or self.position == before:
                    raise

    def _has(self, place: Place) -> bool:
        """Return whether the engine has everything up to a place.

        Raises:
            BackingUnavailableError: The database has failed over before it.
        """
        reached = self.followed.reached(place)
        if reached is Reached.LOST:
            raise BackingUnavailableError(FEED, "the database has failed over, and what was waited for may be lost")
        return reached is Reached.YES

    async def halt(self) -> None:
        """Take no more events: what the engine has stays as it is now."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """End the feed and the loads."""
        await self.store.close()
        tasks = [*self._tasks, *set(self._flights.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            with self._prefetched.load(prefetch.Load(self.store, groups, self._intake.owned)) as load:
                refused = await self._load(ranges, load)
            unneeded = list(refused)
            return refused
        finally:
            if isinstance(self.store, Releasing):
                self._unneeded += [one for one in unneeded if not isinstance(one, SearchRange)]
            for one in ranges:
                del self._flights[one]

    async def _load(self, lacking: Sequence[Loadable], load: prefetch.Load) -> Refused:
        if self.followed.failure:
            raise BackingUnavailableError(FEED, self.followed.failure)
        if self.position is None:
            raise BackingUnavailableError(FEED, self._unanswered or self.trouble)
        ranges = [KeyRange(*one) for one in lacking if not isinstance(one, SearchRange)]
        searches = [one for one in lacking if isinstance(one, SearchRange)]

        async def read(wanted: Sequence[KeyRange]) -> Loaded:
            return await (found_by(self.store, searches, wanted) if searches else load.read(wanted))

        for _ in range(ROUNDS_MAX):
            # A reader that waits for a range which is another database's by now asks again, and finds its owner.
            owned = [Range(one.first, one.last) for one in self._intake.owned(ranges) if one.last is not None]
            refused = await self._intake.load(owned, read, searches) if owned or searches else {}
            if refused is not None:
                return refused
        raise BackingUnavailableError("the database", "its feed breaks faster than ranges are loaded")

    async def write(self, changes: Sequence[RowChange]) -> tuple[bytes, Sequence[bool]]:
        """Write to the database in one transaction, and return the token of the write once the cache has it.

        It also returns for each change whether the database had a row of its key; True for puts.

        Raises:
            PackError: A key or a value makes no row; nothing is written.
            WriteRefusedError: The database refuses; nothing is written.
            BackingUnavailableError: The database does not answer, and whether it was written is not known; or it was
                written, and the feed does not tell of it.
        """
        place, found = await self.store.write(changes)
        self.counters.writes += len(changes)
        if not self._has(place):
            self.store.hurry(place.position)
        await self._wait(lambda: self._has(place))
        return self.followed.token_of(place), found

    async def _wait(self, holds: Callable[[], bool]) -> None:
        if not await self.followed.until(holds, self._wait_s):
            raise BackingUnavailableError(FEED, f"after {self._wait_s:g} s: {self.trouble}")

    @property
    def trouble(self) -> str:
        """Why the feed does not move, if it does not."""
        status = self.store.status
        # The error of a break that is over explains nothing.
        return (status.error if status.state == "down" else "") or "its feed of changes does not move"

    async def _follow(self, since: int | None) -> None:
        try:
            async for event in self.store.changes(since, self._intake.is_wanted):
                await self._intake.take(event)
                self.on_event(event)
        except Exception as error:
            # A defect. No row of the database may be served from here on: its changes are not known any more.
            log.exception("the feed of the database ended")
            self.followed.fail(f"its feed of changes ended: {error}")
            await self._intake.forget_everything()

    def release(self) -> None:
        """Tell the store which ranges are not loaded any more, if it wants to know."""
        if not isinstance(self.store, Releasing):
            return
        unneeded = united([*self._unneeded, *self._prefetched.take_dropped(), *self.forgotten()])
        asked = [KeyRange(*one) for one in self._flights if not isinstance(one, SearchRange)]
        flying = Clip([*asked, *self._prefetched.coming])
        # These are asked about again once their loads have ended.
        self._unneeded = [one for one in unneeded if flying.touches(KeyRange(*one))]
        settled = [KeyRange(*one) for one in unneeded if not flying.touches(KeyRange(*one))]
        absent = self._intake.not_loaded(settled)
        if absent:
            self._prefetched.note_released(absent)
            self.store.release(absent)

    async def _look(self) -> None:
        """Say in the log when the feed breaks, when it is back, and when it is older than it may be."""
        feed_log = FeedLog(self._stale_max_s)
        while True:
            await asyncio.sleep(_LOOK_S)
            self.release()
            feed_log.look(self.store.status, is_stale=self.is_stale)
