"""Counts of calls and batches, and of the time that each took: what metrics and statistics tell of them.

Plain numbers, since only the event loop touches them: a batch costs 2 µs, with prometheus_client's counters 6. What the
native core answers is counted there, and added when figures are asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import grpc
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import NAMES
from pequod.native.http2 import HOT_METHODS, NativeHotCalls
from pequod_server.ops.observe import BatchReply, BatchRequest, BatchWork, Call, Closer

#: From a get of what is there to the first read of something large.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
COMMANDS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384)


class Tally:
    """A histogram of plain numbers."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None, total: float = 0.0) -> None:
        self._bounds = bounds
        #: How many values are up to each bound and beyond the one before; the last are beyond all.
        self.counts = [0] * (len(bounds) + 1) if counts is None else counts
        assert len(self.counts) == len(bounds) + 1, "a bucket for what is beyond the last bound"
        #: Of all values.
        self.sum = total

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def plus(self, other: Tally | None) -> Tally:
        """Return the histogram of both."""
        if other is None:
            return self
        counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        return Tally(self._bounds, counts, self.sum + other.sum)

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many values are up to each bound."""
        bounds = (*map(str, map(float, self._bounds)), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class CallFigures(NamedTuple):
    """Calls so far, by method and code."""

    ended: dict[tuple[str, str], int]
    #: Without those that take as long as their clients like.
    seconds: dict[tuple[str, str], Tally]
    #: Calls under way, by method.
    open: dict[str, int]


class CallTallies:
    """Counts calls by method and code, and times those that carry one request."""

    def __init__(self) -> None:
        self._counts = CallFigures({}, {}, {})
        self._hot: NativeHotCalls | None = None

    def count_hot(self, hot: NativeHotCalls) -> None:
        """Add the calls that the native core answers."""
        self._hot = hot

    def opened(self, call: Call) -> Closer:
        """Count a call as open until it is closed."""
        method, (ended, seconds, still_open) = call.method, self._counts
        still_open[method] = still_open.get(method, 0) + 1

        def closed(code: grpc.StatusCode, duration_s: float) -> None:
            labels = method, code.name
            still_open[method] -= 1
            ended[labels] = ended.get(labels, 0) + 1
            if not call.is_open_ended:
                tally = seconds.get(labels)
                if tally is None:
                    tally = seconds[labels] = Tally(SECONDS)
                tally.add(duration_s)

        return closed

    def counts(self) -> CallFigures:
        """Return all calls so far."""
        ended, seconds, still_open = dict(self._counts.ended), dict(self._counts.seconds), dict(self._counts.open)
        tallies = () if self._hot is None else zip(HOT_METHODS, self._hot.tallies(), strict=True)
        for method, (count, sum_s, buckets) in tallies:
            if count:
                labels = method, grpc.StatusCode.OK.name
                ended[labels] = ended.get(labels, 0) + count
                seconds[labels] = Tally(SECONDS, buckets, sum_s).plus(seconds.get(labels))
                still_open.setdefault(method, 0)
        return CallFigures(ended, seconds, still_open)


class BatchFigures(NamedTuple):
    """Batches so far."""

    seconds: Tally
    #: How many commands each had.
    sizes: Tally
    #: Commands by their kinds.
    commands: dict[int, int]
    #: Commands that failed, by the names of exceptions.
    errors: dict[str, int]


class BatchTallies:
    """Counts the commands of batches and times batches."""

    def __init__(self) -> None:
        self._counts = BatchFigures(Tally(SECONDS), Tally(COMMANDS), dict.fromkeys(NAMES, 0), {})
        self._hot: NativeHotCalls | None = None

    def count_hot(self, hot: NativeHotCalls) -> None:
        """Add the batches that the native core answers."""
        self._hot = hot

    def executed(self, request: BatchRequest, reply: BatchReply, work: BatchWork, duration_s: float) -> None:
        """Take note of a batch."""
        seconds, sizes, commands, errors = self._counts
        kinds = request.kinds
        uncounted = len(kinds)
        seconds.add(duration_s)
        sizes.add(uncounted)
        for kind in NAMES:
            count = kinds.count(kind)
            if count:
                commands[kind] += count
                uncounted -= count
                if not uncounted:
                    break
        for error in (*work.errors, *reply.errors) if work.errors else reply.errors:
            errors[error.reason] = errors.get(error.reason, 0) + 1

    def counts(self) -> BatchFigures:
        """Return all batches so far."""
        seconds, sizes, commands, errors = self._counts
        if self._hot is None:
            return self._counts
        (_, sum_s, buckets), hot_sizes, command_count, by_kind = self._hot.batch_tallies()
        return BatchFigures(
            Tally(SECONDS, buckets, sum_s).plus(seconds),
            Tally(COMMANDS, hot_sizes, command_count).plus(sizes),
            {kind: count + by_kind[kind] for kind, count in commands.items()},
            errors,
        )


class Tallies:
    """The counts of one server."""

    def __init__(self) -> None:
        self.calls = CallTallies()
        self.batches = BatchTallies()

    def count_hot(self, hot: NativeHotCalls) -> None:
        """Add what the native core answers."""
        self.calls.count_hot(hot)
        self.batches.count_hot(hot)

    def say(self, reply: pb.StatsReply) -> None:
        """Write the counts into a reply."""
        reply.call_bounds_s.extend(SECONDS)
        reply.calls.extend(self._messages())
        for kind, count in self.batches.counts().commands.items():
            reply.commands[NAMES[kind]] = count

    def _messages(self) -> Iterator[pb.CallStatistics]:
        by_method: dict[str, tuple[Tally, int]] = {}
        for (method, code), tally in self.calls.counts().seconds.items():
            before, failed = by_method.get(method, (None, 0))
            failed += 0 if code == grpc.StatusCode.OK.name else sum(tally.counts)
            by_method[method] = tally.plus(before), failed
        batches = self.batches.counts()
        by_method["Execute"] = batches.seconds, 0
        for method, (tally, failed) in by_method.items():
            yield pb.CallStatistics(
                method=method, calls=sum(tally.counts), failed=failed, seconds=tally.sum, buckets=tally.counts
            )
