"""The engine and a database behind it: what reads lack is loaded, and every change of the database is taken in.

feed    Changes -> engine.apply      Reload -> engine.forget      in the order of the database's commits
put     store.write -> the feed has passed it -> acknowledged
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from pequod.answers.transacted import Transacted
from pequod.calls import BackingStatistics
from pequod.engine import Engine, PequodError
from pequod.engine.transacting import TransactionLimits
from pequod.language.conditions import Met, Unmet
from pequod.language.transactions import Transaction
from pequod_server.backing import (
    Addition,
    BackingStaleError,
    BackingStore,
    BackingUnavailableError,
    Backoff,
    ConditionalChange,
    Event,
    KeyRange,
    Place,
    Releasing,
    RowChange,
    Status,
)
from pequod_server.backing.deadlines import KeepsDeadlines, KnowsDeadlines
from pequod_server.backing.turns import ended
from pequod_server.database.flights import Flights
from pequod_server.database.followed import FEED, Followed, Reached
from pequod_server.database.gate import Gate, Gates
from pequod_server.database.intake import Intake, Tap
from pequod_server.wire.publishing import DATABASE, HOME_GROUP

log = logging.getLogger("pequod.backing")

#: How often rows that are due are looked for in the database, and how many are deleted at a time. Nobody waits for it:
#: no server shows them.
_REMOVE_S: Final = 0.5
_REMOVED_MAX: Final = 1_000
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
        1. The engine is changed by events in their order, and by loads, through the intake alone.
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
        #: Loads what reads lack.
        self.flights = Flights(engine, store, self._intake, lambda: self._unanswered or self.trouble)
        self._tasks: list[asyncio.Task[None]] = []
        #: Told each event once the engine has it.
        self.on_event: Callable[[Event], None] = lambda _: None
        #: The step that the start waits for now; empty before and afterwards.
        self._start_step = ""
        #: Why the database did not answer when it was begun with.
        self._unanswered = ""

    @property
    def title(self) -> str:
        """The database or the home group, in messages."""
        return f"{HOME_GROUP if isinstance(self.store, Releasing) else DATABASE} {self.name}".rstrip()

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
        await self._migrate()
        for advice in await self.store.check():
            log.warning("advice about the database", extra={"advice": advice})
        self._tasks = [
            asyncio.create_task(self._follow(since), name="pequod database feed"),
            asyncio.create_task(self._look(), name="pequod database state"),
            asyncio.create_task(self._remove_due(), name="pequod database expiry"),
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
                await self._migrate()
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
        self._tasks.append(asyncio.create_task(self._remove_due(), name="pequod database expiry"))
        await self._follow(None)

    @property
    def keeps_deadlines(self) -> bool:
        """Whether the database keeps deadlines of its keys, or the home does."""
        return isinstance(self.store, KeepsDeadlines | KnowsDeadlines)

    async def _migrate(self) -> None:
        """Give tables of earlier versions what they lack, and say so; only who writes to the database does."""
        if self.is_write_through and isinstance(self.store, KeepsDeadlines):
            for statement in await self.store.migrate():
                log.warning("the database's table was changed", extra={"statement": statement, "database": self.name})

    async def _remove_due(self) -> None:
        """Delete rows that are due, some at a time; other servers beside the database delete others meanwhile."""
        store = self.store
        while self.is_write_through and isinstance(store, KeepsDeadlines):
            count = 0
            try:
                count = await store.remove_due(_REMOVED_MAX)
            except PequodError as error:
                log.info("rows that are due stay in the database for now", extra={"error": str(error)})
            await asyncio.sleep(0 if count == _REMOVED_MAX else _REMOVE_S)

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
        await ended(self._tasks)

    async def stop(self) -> None:
        """End the feed and the loads."""
        await self.store.close()
        await ended([*self._tasks, *self.flights.tasks])

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
        return await self._shown(place), found

    async def write_if(self, change: ConditionalChange) -> tuple[bytes, Met | Unmet]:
        """Write to the database if the condition holds there, and return the token of what it has decided by.

        The cache has that state then, whether anything was written or not: a read after it never shows an older one.

        Raises:
            PackError, WriteRefusedError, BackingUnavailableError: As `write`.
        """
        place, outcome = await self.store.write_if(change)
        self.counters.writes += bool(outcome)
        return await self._shown(place), outcome

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> tuple[bytes, Transacted]:
        """Have the database run a transaction; return the token of what it has decided by, as `write_if` does.

        Raises:
            NotNumberError, SumTooLongError: Nothing is done.
            LimitExceededError, PackError, WriteRefusedError, BackingUnavailableError: As `BackingStore.transact`.
        """
        place, done = await self.store.transact(transaction, limits)
        self.counters.writes += len((transaction.then if done.held else transaction.otherwise).written_keys())
        return await self._shown(place), done

    async def add(self, addition: Addition) -> tuple[bytes, bytes]:
        """Add to a row of the database, and return the token of the write once the cache has it, and the sum.

        Raises:
            InvalidDeltaError, NotNumberError, SumTooLongError: Nothing is added.
            PackError, WriteRefusedError, BackingUnavailableError: As `write`.
        """
        place, total = await self.store.add(addition)
        self.counters.writes += 1
        return await self._shown(place), total

    async def _shown(self, place: Place) -> bytes:
        """Wait until the cache has the state of a place, and return its token."""
        if not self._has(place):
            self.store.hurry(place.position)
        await self._wait(lambda: self._has(place))
        return self.followed.token_of(place)

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

    async def _look(self) -> None:
        """Say in the log when the feed breaks, when it is back, and when it is older than it may be."""
        feed_log = _FeedLog(self._stale_max_s)
        while True:
            await asyncio.sleep(_LOOK_S)
            self.flights.release()
            feed_log.look(self.store.status, is_stale=self.is_stale)


class _FeedLog:
    """Says what has changed since it last looked.

    Args:
        stale_max_s: Reads without a level fail once the feed is older; 0 for no such bound.
    """

    __slots__ = ("_stale_max_s", "_told", "_was_down", "_was_stale")

    def __init__(self, stale_max_s: float) -> None:
        self._stale_max_s = stale_max_s
        self._was_down = False
        self._was_stale = False
        #: The last error that was told.
        self._told = ""

    def look(self, status: Status, *, is_stale: bool) -> None:
        """Say what has changed."""
        is_down = status.state == "down"
        if is_down and not (self._was_down and status.error == self._told):
            self._told = status.error
            log.error(
                "the feed of the database is down", extra={"error": status.error, "stale_max_s": self._stale_max_s}
            )
        if self._was_down and status.state == "ok":
            log.info("the feed of the database is back")
        self._was_down = is_down
        if is_stale and not self._was_stale:
            log.error("reads of the database's ranges fail", extra={"stale_max_s": self._stale_max_s})
        elif self._was_stale and not is_stale:
            log.info("reads of the database's ranges go on")
        self._was_stale = is_stale
