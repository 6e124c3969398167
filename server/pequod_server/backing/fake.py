"""A database behind the cache that follows a test's script: delays, failures, commits between two steps.

It owns its keys as a real database does, in memory and with the whole protocol:

    store = FakeStore(mappings)
    store.commit({b"p|bob|0100": b"hi"})           an application wrote to the database
    async with store.held("load"): ...             loads have taken their snapshot and are not delivered
    store.fail("load", times=2)                    the next two loads find the database down
    store.break_feed("restarted", is_lost=True)    the feed breaks, recovers and asks for a reload
    store.fail_over(lost=2)                        a standby takes over that lacks the last two commits
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Mapping as AnyMapping
from contextlib import asynccontextmanager
from typing import Literal

from pequod.answers.transacted import Transacted
from pequod.engine.transacting import TransactionLimits, chosen, outcomes_of, reader_of
from pequod.escapes import shown
from pequod.freshness import database_of
from pequod.language.conditions import MET, Met, Unmet, holds
from pequod.language.decimals import added
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import BackingUnavailableError, PackError
from pequod_server.backing.health import Backoff, FeedBrokenError, Health, mended
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.repeated import once_of_addition, once_of_change
from pequod_server.backing.rows import Clip
from pequod_server.backing.store import (
    Added,
    Addition,
    Changes,
    ConditionalChange,
    Event,
    History,
    IsWanted,
    KeyRange,
    Loaded,
    Place,
    Progress,
    Reload,
    RowChange,
    SequenceHorizon,
    Status,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
    every_key,
    were_there,
    whole,
)
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import once_of_transaction

Step = Literal["check", "load", "write", "changes", "position", "latest"]


class FakeStore:
    """A store in memory that follows a script.

    Invariants:
        1. The log has one entry for each position from 1 on, and replaying it gives ``rows``.
    """

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self.mappings = tuple(mappings)
        #: The rows of the database, for tests to compare with.
        self.rows: dict[bytes, bytes] = {}
        #: The name by which it recognises itself.
        self.name = "fake"
        #: The present timeline, and where the earlier ones were left.
        self.timeline = 1
        self.ends: dict[int, int] = {}
        #: How often `latest` was asked.
        self.questions = 0
        #: The ranges of each load, in the order of their snapshots.
        self.loads: list[tuple[KeyRange, ...]] = []
        self._log: list[tuple[RowChange, ...]] = []
        self._health = Health()
        self._closing = asyncio.Event()
        self._failures: dict[Step, int] = {}
        self._gates: dict[Step, asyncio.Event] = {}
        #: Of the last session.
        self._told_timeline: int | None = None
        self._broken: FeedBrokenError | None = None
        self._moved = asyncio.Event()
        self.request_ids = RequestIds()

    # The script.

    def commit(self, rows: AnyMapping[bytes, bytes | None]) -> int:
        """Change the database as an application would and return the position; None removes a key.

        Raises:
            PackError: A key is of no mapped pattern.
        """
        changes = tuple(RowChange(key, value) for key, value in rows.items())
        for change in changes:
            if all(mapping.columns_of(change.key) is None for mapping in self.mappings):
                raise PackError(f"key {shown(change.key)}", "it is of no mapped pattern")
        for change in changes:
            if change.value is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value
        self._log.append(changes)
        self._moved.set()
        return len(self._log)

    def fail(self, step: Step, *, times: int = 1) -> None:
        """Let the next ``times`` uses of a step find the database down."""
        self._failures[step] = self._failures.get(step, 0) + times
        self._moved.set()

    @asynccontextmanager
    async def held(self, step: Step) -> AsyncIterator[None]:
        """Hold a step: loads and writes are done but not answered, changes are not delivered."""
        gate = self._gates[step] = asyncio.Event()
        try:
            yield
        finally:
            del self._gates[step]
            gate.set()

    def break_feed(self, reason: str, *, is_lost: bool) -> None:
        """Break the feed; with ``is_lost`` everything is read again when it is back."""
        self._broken = FeedBrokenError(reason, is_lost=is_lost)
        self._moved.set()

    def fail_over(self, *, lost: int = 0) -> None:
        """Go on as another timeline, without the last ``lost`` commits; the feed breaks."""
        del self._log[len(self._log) - lost :]
        self.rows = self._replayed()
        self.ends[self.timeline] = len(self._log)
        self.timeline += 1
        # Those of commits that are lost are among them.
        self.request_ids = RequestIds() if lost else self.request_ids
        self.break_feed("failed over", is_lost=True)

    @property
    def history(self) -> History:
        """The history of the positions now."""
        return History(database_of("fake", self.name), self.timeline, dict(self.ends))

    # The protocol.

    @property
    def status(self) -> Status:
        """The state of the change feed."""
        return self._health.status

    async def check(self) -> list[str]:
        """Return no advice."""
        await self._pass("check")
        return []

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges as of the moment of the call, whenever it is answered."""
        clip = Clip(ranges)
        rows = tuple(sorted((key, value) for key, value in self.rows.items() if clip.holds(key)))
        self.loads.append(tuple(ranges))
        horizon, timeline = SequenceHorizon(len(self._log), len(self._log)), self.timeline
        await self._pass("load")
        return Loaded(rows, horizon, timeline)

    def changes(
        self,
        since: int | None = None,
        is_wanted: IsWanted = every_key,  # noqa: ARG002 - all changes are told
    ) -> AsyncIterator[Event]:
        """Yield the events after a position."""
        everything = whole(self.mappings)
        backoff = Backoff(first_s=0.001, most_s=0.01)
        return mended(self._session, since, everything, self._health, backoff, self._closing)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes in one transaction."""
        if self._failures.get("write"):
            await self._pass("write")
        found = were_there(changes, self.rows)
        place = Place(self.timeline, self.commit({change.key: change.value for change in changes}))
        await self._pass("write")
        return WrittenThrough(place, found)

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write a change if its condition holds."""
        if self._failures.get("write"):
            await self._pass("write")
        outcome = self.request_ids.once(once_of_change(change), lambda: self._decide(change))
        place = Place(self.timeline, len(self._log))
        await self._pass("write")
        return WrittenIf(place, outcome)

    def _decide(self, change: ConditionalChange) -> Met | Unmet:
        present = self.rows.get(change.key)
        if not holds(change.condition, present):
            return Unmet(present)
        self.commit({change.key: change.value})
        return MET

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction."""
        if self._failures.get("write"):
            await self._pass("write")
        done = self.request_ids.once(once_of_transaction(transaction), lambda: self._run(transaction, limits))
        place = Place(self.timeline, len(self._log))
        await self._pass("write")
        return WrittenTransaction(place, done)

    def _run(self, transaction: Transaction, limits: TransactionLimits) -> Transacted:
        held, commands = chosen(transaction, self.rows.get)
        outcomes, written = outcomes_of(commands, reader_of(self.rows), limits)
        if written:
            self.commit(written)
        return Transacted(held, outcomes)

    async def add(self, addition: Addition) -> Added:
        """Add to a row."""
        if self._failures.get("write"):
            await self._pass("write")
        total = self.request_ids.once(once_of_addition(addition), lambda: self._sum(addition))
        place = Place(self.timeline, len(self._log))
        await self._pass("write")
        return Added(place, total)

    def _sum(self, addition: Addition) -> bytes:
        total = added(addition.key, self.rows.get(addition.key), addition.delta)
        self.commit({addition.key: total})
        return total

    async def position(self) -> Place:
        """Return the number of commits."""
        await self._pass("position")
        return Place(self.timeline, len(self._log))

    async def latest(self) -> Place:
        """Return the number of commits."""
        self.questions += 1
        await self._pass("latest")
        return Place(self.timeline, len(self._log))

    def hurry(self, position: int) -> None:
        """Do nothing: the feed waits for nothing but the script."""

    async def mark(self) -> str:
        """Return the name of the store."""
        await self._pass("position")
        return self.name

    async def knows(self, mark: str) -> bool:
        """Return whether the mark is the name of the store."""
        return mark == self.name

    async def close(self) -> None:
        """End the feed."""
        self._closing.set()
        self._moved.set()
        self._health.closed()

    async def _session(self, since: int | None) -> AsyncGenerator[Event, None]:
        await self._pass("changes")
        position = len(self._log) if since is None else min(since, len(self._log))
        history = self.history
        # What a session of an earlier timeline told up to the same position may be lost.
        is_same, self._told_timeline = self._told_timeline in {None, self.timeline}, self.timeline
        if since is None or (since == position and is_same):
            yield Progress(position, history=history)
        else:
            everything = whole(self.mappings)
            yield Reload(position, everything, f"the log is not the one that came to {since}", history)
        while not self._closing.is_set():
            self._moved.clear()
            while position < len(self._log):
                await self._pass("changes")
                if history.timeline != self.timeline:
                    break
                position += 1
                yield Changes(position, position, self._log[position - 1])
            if self._broken is not None:
                error, self._broken = self._broken, None
                raise error
            await self._pass("changes")
            if position == len(self._log):
                self._health.stands(self._health.now(), 0)
                await self._moved.wait()

    async def _pass(self, step: Step) -> None:
        gate = self._gates.get(step)
        if gate is not None:
            await gate.wait()
        if self._failures.get(step):
            self._failures[step] -= 1
            raise BackingUnavailableError("fake", f"{step} was told to fail")

    def _replayed(self) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        for changes in self._log:
            for change in changes:
                if change.value is None:
                    rows.pop(change.key, None)
                else:
                    rows[change.key] = change.value
        return rows

    def _check(self) -> None:
        assert self._replayed() == self.rows, "invariant 1"
