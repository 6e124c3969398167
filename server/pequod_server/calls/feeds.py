"""The feeds of watches: those that streams read, and those that wait for their clients to come back.

A watch that goes on takes over the feed of its range. A watch of many ranges begins with what the feeds that are there
have kept of each, or of a range around it: so a range may go on in another company than before, or as two halves.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from pequod.engine import Change, Engine, LimitExceededError
from pequod.errors import WatchCompactedError
from pequod_server.calls.behind import Database
from pequod_server.calls.feed import Feed
from pequod_server.config import ServerConfig
from pequod_server.wire.bounds import Bounds

#: Ranges that begin before another one, and are looked at: parts that are split do not overlap others of their view.
_AROUND: Final = 8


class RangeStart(NamedTuple):
    """Where one of many ranges begins."""

    bounds: Bounds
    #: The revision of this server after which it goes on; None: the present one.
    after: int | None


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
        """Return the number of ranges that streams follow."""
        return sum([len(feed.ranges) for feed in self._attached])

    def open(self, bounds: Bounds) -> Feed:
        """Return a new feed of one range, from now on.

        Raises:
            LimitExceededError: There are too many.
            NotWatchableError: A join over the range does not report its changes.
        """
        feed = self._open([bounds])
        if feed.lost:
            self.forget(feed)
            raise feed.lost[0]
        return feed

    def _open(self, ranges: Sequence[Bounds]) -> Feed:
        most = self._config.watches_max
        if len(self) + len(ranges) > most:
            raise LimitExceededError("watches_max", len(self) + len(ranges), most)
        while self._idle and len(self) + sum([len(feed.ranges) for feed in self._idle]) + len(ranges) > most:
            self._close_idle(next(iter(self._idle)))
        # So a client that follows several ranges knows each of them as of the revision where the last one begins.
        for other in self._all():
            other.settle()
        changes_max = self._config.watch_changes_max * len(ranges)
        feed = Feed(self._engine, ranges, changes_max, self._database, self._token)
        self._attached.add(feed)
        return feed

    def _all(self) -> list[Feed]:
        return [*self._idle, *self._attached]

    def open_ranges(self, starts: Sequence[RangeStart]) -> Feed:
        """Return a new feed of many ranges; those that cannot begin where they should are lost at once.

        Raises:
            LimitExceededError: There are too many.
        """
        feed = self._open([start.bounds for start in starts])
        self._go_on(feed, starts)
        going = {bounds for number, bounds in enumerate(feed.ranges) if number not in feed.lost}
        for idle in tuple(self._idle):
            if going.issuperset(idle.ranges):
                self._close_idle(idle)
        return feed

    def _go_on(self, feed: Feed, starts: Sequence[RangeStart]) -> None:
        """Have ranges go on with what other feeds have kept of them; those of which something is missing are lost."""
        settled: defaultdict[Bounds, list[tuple[Feed, int]]] = defaultdict(list)
        for other in self._all():
            if other is not feed:
                # What has begun may have changed what others see.
                other.settle()
                for its_number, bounds in enumerate(other.ranges) if other.is_settled else ():
                    settled[bounds].append((other, its_number))
        # A part of a view that was split goes on with what is kept of the whole.
        order = sorted(settled, key=_by_first)
        afters = dict[int, int]()
        kept: defaultdict[Feed, list[tuple[int, int, int]]] = defaultdict(list)
        for number, (bounds, after) in enumerate(starts):
            if after is None or number in feed.lost:
                continue
            wide = around(bounds, order)
            found_at = (one for place in (bounds, *wide) for one in settled.get(place, ()))
            place = next((one for one in found_at if one[0].goes_on_after(one[1], after)), None)
            if place is not None:
                kept[place[0]].append((number, place[1], after))
            elif after != self._engine.revision:
                feed.lose(number, _gone(after))
                continue
            afters[number] = after
        runs = dict[int, list[Change]]()
        for other, some in kept.items():
            found = other.since([(its_number, after) for _, its_number, after in some])
            for (number, its_number, _), changes in zip(some, found, strict=True):
                whole = other.ranges[its_number] == feed.ranges[number]
                own = changes if whole else [one for one in changes if holds(feed.ranges[number], one.key)]
                if own:
                    runs[number] = own
        feed.go_on(afters, runs)

    def reopen(self, bounds: Bounds, revision: int) -> Feed:
        """Return a feed of what came after ``revision``.

        Raises:
            WatchCompactedError: Changes after ``revision`` were dropped.
            LimitExceededError: There are too many.
        """
        for feed in self._all():
            if feed.ranges != (bounds,):
                continue
            feed.settle()
            # A copy would lack what has not settled.
            if feed.goes_on_after(0, revision) and (feed in self._idle or feed.is_settled):
                return self._take_over(feed, revision)
        if revision == self._engine.revision:
            return self.open(bounds)
        raise _gone(revision)

    def _take_over(self, feed: Feed, revision: int) -> Feed:
        if feed in self._idle:
            self._idle.pop(feed).cancel()
            self._attached.add(feed)
        else:
            # The old stream may be dead and not know it yet, or be of another client.
            original, feed = feed, self.open(feed.ranges[0])
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
        for feed in sorted(self._all(), key=lambda feed: feed.size_bytes, reverse=True):
            feed.relieve()

    def close(self) -> None:
        """Close the feeds without a stream."""
        for feed in tuple(self._idle):
            self._close_idle(feed)


def _by_first(bounds: Bounds) -> bytes:
    return bounds[0]


def holds(bounds: Bounds, key: bytes) -> bool:
    """Return whether a key lies in a range."""
    return bounds[0] <= key and (bounds[1] is None or key < bounds[1])


def around(bounds: Bounds, ranges: Sequence[Bounds]) -> Iterator[Bounds]:
    """Yield ranges that hold a whole other one; of many that overlap, the few that begin nearest before it.

    Args:
        ranges: By their first keys.

    >>> list(around((b"c", b"d"), [(b"a", b"b"), (b"a", None), (b"b", b"d"), (b"c", b"d"), (b"d", None)]))
    [(b'b', b'd'), (b'a', None)]
    """
    stop = bisect_right(ranges, bounds[0], key=_by_first)
    for wide in reversed(ranges[max(0, stop - _AROUND) : stop]):
        ends_behind = wide[1] is None or (bounds[1] is not None and bounds[1] <= wide[1])
        if ends_behind and wide != bounds:
            yield wide


def _gone(revision: int) -> WatchCompactedError:
    return WatchCompactedError(f"changes since revision {revision} are not kept any more")
