"""The feeds of watches: changes of a range, kept until a client's stream takes them.

    engine watch --> wake --> settle in the loop's next turn --> one batch of changes per revision
                                                                        |
    Feed   [sent sent sent | waiting waiting]   <-----------------------+
            ^ floor: a client that has seen this revision misses nothing

A feed outlives its stream for a while, so that a client whose connection broke goes on where it was. A stream that
takes nothing delays no other: its feed fills up, drops changes that were sent before, and ends when it has no more of
these.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from pequod.commands.columns import range_arguments
from pequod.commands.kinds import SCAN
from pequod.engine import Change, Engine, Lacking, LimitExceededError, MissingError, Rows, change_bytes
from pequod.engine.answer import answer
from pequod.errors import PequodError, WatchCompactedError
from pequod_server.config import ServerConfig
from pequod_server.database.gate import Gates
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.publishing import public

#: How many times a batch on its way is in memory: as a message, encoded, and in gRPC's buffers.
_COPIES: Final = 3
#: The most bytes that a change takes on the wire beside its key and values.
_CHANGE_WIRE: Final = 16
_NO_MEMORY: Final = "there is no memory (memory_limit) for the changes that wait to be taken"


class Database(Protocol):
    """The databases behind the engine, as watches see them."""

    #: Closed while a commit is half applied.
    gate: Gates

    async def load_patiently(self, lacking: Iterable[Lacking]) -> None:
        """Load ranges, however long that takes."""
        ...


class RevisionChanges(NamedTuple):
    """The changes that led to a revision."""

    revision: int
    changes: list[Change]
    size_bytes: int
    #: Names the state that they led to.
    token: bytes


class Feed:
    """The changes of one range since some revision, for one stream at a time.

    Invariants:
        1. ``_batches`` ascend in revision, all above ``floor``; the first ``_sent`` of them went to the stream.
        2. The range as of ``floor``, with all batches applied to it, is the range as of now.
    """

    def __init__(
        self, engine: Engine, bounds: Bounds, changes_max: int, database: Database | None, token: Callable[[], bytes]
    ) -> None:
        self._engine = engine
        self._token = token
        self._database = database
        #: Loads parts of the range that the engine has forgotten.
        self._loading: asyncio.Task[None] | None = None
        self._changes_max = changes_max
        self.bounds = bounds
        self._loop = asyncio.get_running_loop()
        # Not a method of the feed, which has the watch: such a ring would wait for the cyclic collector.
        self._watch = engine.watch(*bounds, partial(_wake, weakref.ref(self)), now=time.monotonic())
        self.floor = engine.revision
        self._batches: deque[RevisionChanges] = deque()
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

    def wake(self) -> None:
        """Settle in the next turn of the loop."""
        self._loop.call_soon(self.settle)

    def settle(self) -> None:
        """Take the changes that the engine has for the watch; while a commit is half applied, wait for its end."""
        if self._loading is not None or self._is_closed or self.ended is not None:
            return
        if self._is_half():
            assert self._database is not None, "only commits of a database are half applied"
            self._database.gate.when_open(self.settle)
            return
        try:
            changes = self._engine.settle(self._watch, now=time.monotonic())
        except MissingError as error:
            self._loading = self._loop.create_task(self._settle_later(error.lacking), name="pequod watch load")
            return
        if len(changes) > self._changes_max:
            # More changes than may wait: they need not be weighed, nor sent before the end.
            self._end(self._too_many())
            return
        if changes:
            batch = RevisionChanges(self._engine.revision, changes, change_bytes(changes), self._token())
            self._batches.append(batch)
            self._change_count += len(changes)
            self._grow(batch.size_bytes)
            self.news.set()
        if self._watch.ended is not None:
            self._end(self._watch.ended)
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
            self._engine.unwatch(self._watch)
            self.ended = WatchCompactedError(reason)
            self.news.set()

    def rows(self) -> Rows:
        """Return the rows of the range as of now."""
        rows = answer(self._engine, SCAN, *range_arguments(*self.bounds), 0, time.monotonic())
        assert isinstance(rows, Rows), "scans give rows"
        return rows

    def take(self) -> RevisionChanges | None:
        """Return the next batch of changes for the stream, None if no change has come."""
        self._land()
        if self._sent == len(self._batches):
            self.news.clear()
            return None
        batch = self._batches[self._sent]
        sizes = [_CHANGE_WIRE + len(key) + len(old or b"") + len(new or b"") for key, old, new in batch.changes]
        sent_bytes = _COPIES * sum(sizes)
        if not self._engine.make_room(sent_bytes):
            self._forget()
            self._end(_NO_MEMORY)
            return None
        self._sent += 1
        self._flying_bytes = sent_bytes
        self._engine.ledger.change_watches(sent_bytes)
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

    def go_back(self, revision: int) -> bool:
        """Go back to the batches after ``revision``, to be taken again; return whether none of them is missing."""
        if self.ended is not None or revision < self.floor:
            return False
        self._sent = sum(batch.revision <= revision for batch in self._batches)
        if self._sent < len(self._batches):
            self.news.set()
        return True

    def copy_from(self, other: Feed) -> None:
        """Begin with the batches of another feed of the same range; both are settled."""
        self.floor, self._batches, self._change_count = other.floor, other._batches.copy(), other._change_count
        self._grow(other._bytes)

    def rest(self) -> None:
        """Note that the feed has no stream for a while."""
        self._land()

    def close(self) -> None:
        """Stop following the range."""
        if self._loading is not None:
            self._loading.cancel()
        self._land()
        self._is_closed = True
        self._engine.unwatch(self._watch)
        self._forget()


def _wake(feed: weakref.ref[Feed]) -> None:
    if (woken := feed()) is not None:
        woken.wake()


class Feeds:
    """The feeds of a server.

    Args:
        token: Returns the token of the present state.

    Invariants:
        1. A feed is attached to a stream, or is in ``_idle`` with the timer that will close it.
    """

    def __init__(
        self,
        engine: Engine,
        config: ServerConfig,
        database: Database | None = None,
        token: Callable[[], bytes] = bytes,
    ) -> None:
        self._engine = engine
        self._token = token
        self._database = database
        self._config = config
        self._attached: set[Feed] = set()
        self._idle: dict[Feed, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._attached)

    def open(self, bounds: Bounds) -> Feed:
        """Return a new feed, from now on.

        Raises:
            LimitExceededError: There are too many.
            NotWatchableError: A join over the range does not report its changes.
        """
        if len(self._attached) >= self._config.watches_max:
            raise LimitExceededError("watches_max", len(self._attached) + 1, self._config.watches_max)
        if len(self._attached) + len(self._idle) >= self._config.watches_max:
            self._close_idle(next(iter(self._idle)))
        # So a client that follows several ranges knows each of them as of the revision where the last one begins.
        for other in [*self._attached, *self._idle]:
            other.settle()
        feed = Feed(self._engine, bounds, self._config.watch_changes_max, self._database, self._token)
        self._attached.add(feed)
        return feed

    def reopen(self, bounds: Bounds, revision: int) -> Feed:
        """Return a feed of what came after ``revision``.

        Raises:
            WatchCompactedError: Changes after ``revision`` were dropped.
            LimitExceededError: There are too many.
        """
        for feed in [*self._idle, *self._attached]:
            if feed.bounds != bounds:
                continue
            feed.settle()
            if not feed.ended and feed.floor <= revision:
                return self._take_over(feed, revision)
        if revision == self._engine.revision:
            return self.open(bounds)
        raise WatchCompactedError(f"changes since revision {revision} are not kept any more")

    def _take_over(self, feed: Feed, revision: int) -> Feed:
        if feed in self._idle:
            self._idle.pop(feed).cancel()
            self._attached.add(feed)
        else:
            # The old stream may be dead and not know it yet, or be of another client.
            original, feed = feed, self.open(feed.bounds)
            feed.copy_from(original)
        feed.go_back(revision)
        return feed

    def detach(self, feed: Feed) -> None:
        """Keep a feed for a while after its stream has ended."""
        self._attached.discard(feed)
        feed.rest()
        if feed.ended is not None or self._config.watch_linger_s == 0:
            feed.close()
            return
        close: Callable[[Feed], None] = self._close_idle
        self._idle[feed] = asyncio.get_running_loop().call_later(self._config.watch_linger_s, close, feed)

    def forget(self, feed: Feed) -> None:
        """Close a feed at once."""
        self._attached.discard(feed)
        feed.close()

    def _close_idle(self, feed: Feed) -> None:
        self._idle.pop(feed).cancel()
        feed.close()

    def relieve(self) -> None:
        """Drop changes, those of the largest feeds first, while memory is over its limit and evicting does not help."""
        ledger = self._engine.ledger
        if ledger.total_bytes <= ledger.limit_bytes or self._engine.make_room():
            return
        for feed in sorted([*self._idle, *self._attached], key=lambda feed: feed.size_bytes, reverse=True):
            feed.relieve()

    def close(self) -> None:
        """Close the feeds without a stream."""
        for feed in tuple(self._idle):
            self._close_idle(feed)
