"""The changes of some ranges, kept until a client's stream takes them.

    engine watches --> wake --> settle in the loop's next turn --> one batch of changes per revision
                                                                            |
    Feed   [sent sent sent | waiting waiting]   <---------------------------+
            ^ floor: a client that has seen this revision misses nothing

A feed outlives its stream for a while, so that a client whose connection broke goes on where it was. A stream that
takes nothing delays no other: its feed fills up, drops changes that were sent before, and ends when it has no more of
these.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from pequod.commands.columns import range_arguments
from pequod.commands.kinds import SCAN
from pequod.engine import (
    Change,
    Changes,
    Engine,
    Lacking,
    MissingError,
    Rows,
    ToldLane,
    Watch,
    change_bytes,
    joined,
    take_runs,
)
from pequod.engine.answer import answer
from pequod.errors import NotWatchableError, PequodError, WatchCompactedError
from pequod.language.missing import NextGroups
from pequod_server.calls.behind import Database
from pequod_server.calls.revision_changes import RevisionChanges, runs_of
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.publishing import public

#: How many times a batch on its way is in memory: as a message, encoded, and in gRPC's buffers.
_COPIES: Final = 3
#: The most bytes that a change takes on the wire beside its key and values.
_CHANGE_WIRE: Final = 16
_NO_MEMORY: Final = "there is no memory (memory_limit) for the changes that wait to be taken"


class Feed:
    """The changes of some ranges since some revision, for one stream at a time.

    Invariants:
        1. ``_batches`` ascend in revision, all above ``floor``; the first ``_sent`` of them went to the stream. Between
           the revision of one and the ``since`` of the next is no change, nor from the last one up to ``_known``.
        2. A range that is not in ``lost``, as of ``floor_of`` it, with all batches applied to it, is the range as of
           the last settling.
        3. ``_told`` has what the watches were told since the last batch, and ``_woken`` the numbers of those that have
           something else to settle.
    """

    def __init__(
        self,
        engine: Engine,
        ranges: Sequence[Bounds],
        changes_max: int,
        database: Database | None,
        token: Callable[[], bytes],
    ) -> None:
        self._engine = engine
        self._token = token
        self._database = database
        #: Loads parts of the ranges that the engine has forgotten.
        self._loading: asyncio.Task[None] | None = None
        self._changes_max = changes_max
        self.ranges = tuple(ranges)
        self._loop = asyncio.get_running_loop()
        #: Ranges that are not followed, or not any more, and why.
        self.lost: dict[int, PequodError] = {}
        self._told = Changes()
        self._woken: list[int] = []
        # Not a method of the feed, which has the watches: such a ring would wait for the cyclic collector.
        self._call = partial(_settle_soon, weakref.ref(self), self._loop)
        self._watches: dict[int, Watch] = {}
        self._begin()
        self.floor = self._known = engine.revision
        #: Of each range, the revision where it begins.
        self._floors = [engine.revision] * len(self.ranges)
        self._batches: deque[RevisionChanges] = deque()
        #: Changes by range, and the ends of ranges, that become the next batch once nothing is missing.
        self._runs: dict[int, list[Change]] = {}
        self._ending: list[int] = []
        self._change_count = 0
        self._bytes = 0
        #: Copies of the batch that is on its way to the client.
        self._flying_bytes = 0
        self._sent = 0
        self._is_closed = False
        #: Set when there is something for the stream.
        self.news = asyncio.Event()
        #: Why there will be no more.
        self.ended: WatchCompactedError | None = None

    def _begin(self) -> None:
        now = time.monotonic()
        lacking, next_groups, is_begun = list[Lacking](), list[NextGroups](), False
        try:
            for number, bounds in enumerate(self.ranges):
                try:
                    lane = ToldLane(self._told, number, self._woken, self._call)
                    self._watches[number] = self._engine.watch(*bounds, lane, now=now)
                except NotWatchableError as error:
                    self.lost[number] = error
                except MissingError as error:
                    lacking += error.lacking
                    next_groups += error.next_groups
            if lacking:
                raise MissingError(lacking, next_groups)
            is_begun = True
        finally:
            if not is_begun:
                self._unwatch()

    def _unwatch(self) -> None:
        for watch in self._watches.values():
            self._engine.unwatch(watch)

    @property
    def is_settled(self) -> bool:
        """Whether all changes so far are in batches."""
        return not self._told and not self._woken and not self._runs

    def floor_of(self, number: int) -> int:
        """Return the revision after which all changes of a range are kept."""
        return max(self.floor, self._floors[number])

    def settle(self) -> None:
        """Take the changes that the engine has for the watches; while a commit is half applied, wait for its end."""
        if self.is_settled and self.ended is None:
            self._known = self._engine.revision
        is_busy = self._loading is not None or self._is_closed or self.ended is not None
        if is_busy or not (self._told or self._woken):
            return
        if self._is_half():
            assert self._database is not None, "only commits of a database are half applied"
            self._database.gate.when_open(self.settle)
            return
        is_alone = not self._runs and not self._ending
        if is_alone and (taken := take_runs(self._watches, self._woken, self._told)) is not None:
            if taken:
                self._add(taken)
            return
        if lacking := self._collect():
            self._loading = self._loop.create_task(self._settle_later(lacking), name="pequod watch load")
            return
        runs, self._runs = self._runs, {}
        ending, self._ending = self._ending, []
        if runs or ending:
            self._add(joined(runs), ending)
            if len(self.lost) == len(self.ranges):
                self._end(str(self.lost[ending[-1]]) if ending else "no range is left")

    def _collect(self) -> list[Lacking]:
        """Settle what was woken; return what has to be loaded before the rest of it."""
        behind, lacking, now, watches = list[int](), list[Lacking](), time.monotonic(), self._watches
        self._keep_told()
        while self._woken:
            # One range that settles may wake another.
            woken = self._woken.copy()
            self._woken.clear()
            for number in woken:
                watch = watches[number]
                try:
                    # A read need not begin where all is as a scan would return it.
                    changes = self._engine.settle(watch, now=now) if watch.is_behind else watch.take()
                except MissingError as error:
                    lacking += error.lacking
                    behind.append(number)
                    continue
                if changes:
                    self._runs.setdefault(number, []).extend(changes)
                if watch.ended is not None:
                    self.lost[number] = WatchCompactedError(watch.ended)
                    self._ending.append(number)
        self._keep_told()
        self._woken += behind
        return lacking

    def _keep_told(self) -> None:
        """Take what the watches were told; what settles one range may be told to others, too."""
        told = take_runs({}, [], self._told)
        assert told is not None, "no watch is asked"
        for number, changes in runs_of(told):
            self._runs.setdefault(number, []).extend(changes)

    def _add(self, changes: Changes, ending: Sequence[int] = ()) -> None:
        """Add a batch of the present revision; drop old ones, or end, if there are too many changes now."""
        if len(changes) > self._changes_max:
            # More changes than may wait: they need not be weighed, nor sent before the end.
            self._end(self._too_many())
            return
        revision = self._engine.revision
        size_bytes, text_bytes = change_bytes(changes)
        sent_bytes = _COPIES * (_CHANGE_WIRE * len(changes) + text_bytes)
        self._batches.append(
            RevisionChanges(self._known, revision, changes, size_bytes, sent_bytes, self._token(), ending)
        )
        self._known = revision
        self._change_count += len(changes)
        self._grow(size_bytes)
        self.news.set()
        while self._change_count > self._changes_max and self._batches:
            if self._sent == 0:
                self._end(self._too_many())
                return
            self._drop_oldest()
        ledger = self._engine.ledger
        if changes and ledger.total_bytes > ledger.limit_bytes and not self._engine.make_room():
            self.relieve()

    def _too_many(self) -> str:
        return f"more than {self._changes_max} changes (watch_changes_max) wait to be taken"

    def _is_half(self) -> bool:
        return self._database is not None and self._database.gate.is_closed

    def _drop_oldest(self) -> None:
        dropped = self._batches.popleft()
        self._sent -= 1
        self.floor = dropped.revision
        self._change_count -= len(dropped.changes)
        self._grow(-dropped.size_bytes)

    def relieve(self) -> None:
        """While memory is over its limit, drop changes that were sent; if that is not enough, drop all, and end."""
        ledger = self._engine.ledger
        while self._sent and ledger.total_bytes > ledger.limit_bytes:
            self._drop_oldest()
        if self._batches and ledger.total_bytes > ledger.limit_bytes:
            self._forget()
            self._end(_NO_MEMORY)

    @property
    def size_bytes(self) -> int:
        """The bytes that the changes take."""
        return self._bytes

    def _grow(self, grown_bytes: int) -> None:
        self._bytes += grown_bytes
        self._engine.ledger.change_watches(grown_bytes)

    def _forget(self) -> None:
        self._batches.clear()
        self._change_count = self._sent = 0
        self._grow(-self._bytes)

    async def _settle_later(self, lacking: Sequence[Lacking]) -> None:
        assert self._database is not None, "only backed tables lack something"
        try:
            await self._database.load_patiently(lacking)
        except PequodError as error:
            self._end(str(public(error)))
            return
        finally:
            self._loading = None
        self.settle()

    def _end(self, reason: str) -> None:
        if self.ended is None:
            # Later changes are not sent: changes before them are missing.
            self._unwatch()
            self.ended = WatchCompactedError(reason)
            self.news.set()

    def rows(self, number: int = 0) -> Rows:
        """Return the rows of a range as of now."""
        rows = answer(self._engine, SCAN, *range_arguments(*self.ranges[number]), 0, time.monotonic())
        assert isinstance(rows, Rows), "scans give rows"
        return rows

    def take(self) -> RevisionChanges | None:
        """Return the next batch of changes for the stream, None if no change has come."""
        self._land()
        if self._sent == len(self._batches):
            self.news.clear()
            return None
        batch = self._batches[self._sent]
        if not self._engine.has_room(batch.sent_bytes):
            self._forget()
            self._end(_NO_MEMORY)
            return None
        self._sent += 1
        self._flying_bytes = batch.sent_bytes
        self._engine.ledger.change_watches(batch.sent_bytes)
        return batch

    def _land(self) -> None:
        """Note that the last message has left, as far as gRPC says."""
        self._engine.ledger.change_watches(-self._flying_bytes)
        self._flying_bytes = 0

    async def wait(self, wait_s: float) -> bool:
        """Wait for something to take, ``wait_s`` at most; 0: for as long as it takes.

        Returns:
            False if there is nothing yet, and nothing is missing up to the engine's present revision.
        """
        while True:
            try:
                async with asyncio.timeout(wait_s or None):
                    await self.news.wait()
                return True
            except TimeoutError:
                self.settle()
                if self.news.is_set():
                    return True
                if self._loading is None and not self._is_half():
                    return False

    def go_back(self, revision: int) -> None:
        """Go back to the batches after a revision, after which its ranges go on: they are taken again."""
        self._sent = sum(batch.revision <= revision for batch in self._batches)
        if self._sent < len(self._batches):
            self.news.set()

    def copy_from(self, other: Feed) -> None:
        """Begin with the batches of another feed of the same ranges; both are settled."""
        self.floor, self._floors, self._known = other.floor, other._floors.copy(), other._known
        self._batches, self._change_count = other._batches.copy(), other._change_count
        self._grow(other._bytes)

    def goes_on_after(self, number: int, revision: int) -> bool:
        """Return whether all changes of a range after a revision are here, and in batches without earlier ones.

        Another feed of the range may have told of a revision that lies between the changes of a batch of this one.
        """
        last = self._engine.revision if self.is_settled else self._known
        known = next((batch.since for batch in self._batches if batch.revision > revision), last)
        is_kept = self.ended is None and number not in self.lost and revision >= self.floor_of(number)
        return is_kept and revision in (self._floors[number], min(known, revision))

    def since(self, afters: Sequence[tuple[int, int]]) -> list[list[Change]]:
        """Return the changes of some ranges, each after a revision of its own.

        Requires:
            They go on after these revisions.

        Cost:
            O(runs after the earliest of the revisions).
        """
        earliest = min((after for _, after in afters), default=0)
        runs: defaultdict[int, list[tuple[int, list[Change]]]] = defaultdict(list)
        for batch in self._batches:
            if batch.revision > earliest:
                for number, changes in batch.runs():
                    runs[number].append((batch.revision, changes))
        return [
            list(chain.from_iterable(changes for revision, changes in runs[number] if revision > after))
            for number, after in afters
        ]

    def lose(self, number: int, error: PequodError) -> None:
        """Follow a range no more."""
        self._engine.unwatch(self._watches[number])
        self.lost[number] = error

    def go_on(self, afters: Mapping[int, int], runs: dict[int, list[Change]]) -> None:
        """Have ranges begin after earlier revisions, with the changes since then as the first batch.

        Requires:
            The feed has just begun, and these ranges are not lost.
        """
        for number, revision in afters.items():
            self._floors[number] = revision
        self.floor = self._known = min(self._floors, default=self.floor)
        if runs:
            self._add(joined(runs))

    def rest(self) -> None:
        """Note that the feed has no stream for a while."""
        self._land()

    def close(self) -> None:
        """Stop following the range."""
        if self._loading is not None:
            self._loading.cancel()
        self._land()
        self._is_closed = True
        self._unwatch()
        self._forget()


def _settle_soon(feed: weakref.ref[Feed], loop: asyncio.AbstractEventLoop) -> None:
    """Have a feed settle in the next turn of the loop."""
    if (found := feed()) is not None:
        loop.call_soon(found.settle)
