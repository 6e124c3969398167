"""Requests sent one after another or by the clock, and their latencies.

closed loop   a fixed number under way; the next starts when one ends      latency: from its start to its end
open loop     each at its own time, whether or not the others have ended   latency: from that time to its end, so that
                                                                           every request pays for a server that stalls
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hdrh.histogram import HdrHistogram

from pequod.errors import PequodError

#: Latencies are kept in microseconds, with three digits, up to an hour.
_US_MAX: Final = 3_600_000_000
_DIGITS: Final = 3


class ReplayRequest(NamedTuple):
    """A row of `workloads`' requests."""

    at: int
    kind: str
    home: int | None
    key: bytes
    last: bytes | None
    value: bytes | None


Send = Callable[[ReplayRequest], Awaitable[object]]


@dataclass(slots=True)
class ReplayOutcome:
    """The results of requests; results of several tasks can be added."""

    #: Latencies by kind of request, without failed requests.
    latencies: dict[str, HdrHistogram] = field(default_factory=dict)
    #: The number of errors by name.
    errors: Counter[str] = field(default_factory=Counter)
    #: From the first start to the last end.
    seconds: float = 0.0

    def record(self, kind: str, seconds: float) -> None:
        """Note a request that succeeded."""
        if kind not in self.latencies:
            self.latencies[kind] = histogram()
        self.latencies[kind].record_value(min(_US_MAX, max(1, round(seconds * 1e6))))

    def encoded(self) -> Encoded:
        """Return the same as plain values, which can be pickled."""
        return Encoded(
            {kind: latencies.encode() for kind, latencies in self.latencies.items()}, dict(self.errors), self.seconds
        )

    def add(self, other: Encoded) -> None:
        """Add the results of requests that another task sent at the same time."""
        for kind, latencies in other.latencies.items():
            self.latencies.setdefault(kind, histogram()).decode_and_add(latencies)
        self.errors.update(other.errors)
        self.seconds = max(self.seconds, other.seconds)


class Encoded(NamedTuple):
    """Results as plain values, on their way to the driver."""

    latencies: dict[str, bytes]
    errors: dict[str, int]
    seconds: float


def histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds."""
    return HdrHistogram(1, _US_MAX, _DIGITS)


async def closed_loop(requests: Iterable[ReplayRequest], send: Send, window: int) -> ReplayOutcome:
    """Send requests in their order, ``window`` of them under way at once."""
    outcome = ReplayOutcome()
    remaining: Iterator[ReplayRequest] = iter(requests)
    start = time.perf_counter()

    async def work() -> None:
        for request in remaining:
            await _timed(request, send, time.perf_counter(), outcome)

    async with asyncio.TaskGroup() as workers:
        for _ in range(window):
            workers.create_task(work())
    outcome.seconds = time.perf_counter() - start
    return outcome


async def open_loop(requests: Iterable[ReplayRequest], send: Send, rate: float) -> ReplayOutcome:
    """Send requests at their times: ``rate`` units of ``at`` are one second.

    Requires:
        The requests come in the order of ``at``.
    """
    outcome = ReplayOutcome()
    start = time.perf_counter()
    async with asyncio.TaskGroup() as under_way:
        for request in requests:
            due = start + request.at / rate
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            elif request.at % 64 == 0:
                # The loop is late; the requests under way need their turn all the same.
                await asyncio.sleep(0)
            under_way.create_task(_timed(request, send, due, outcome))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def _timed(request: ReplayRequest, send: Send, start: float, outcome: ReplayOutcome) -> None:
    try:
        await send(request)
    except PequodError as error:
        outcome.errors[type(error).__name__] += 1
    else:
        outcome.record(request.kind, time.perf_counter() - start)
