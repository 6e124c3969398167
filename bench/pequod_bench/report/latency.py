"""Latencies of calls that start by the clock, whether or not the earlier ones are done.

intended   |    |    |    |    |
call       |--| |-----------------|        latency: from the intended start to the end,
                |    |-----------|         so that a server that stalls is charged for all who waited

A loop that waits for each call before it makes the next would make none while the server stalls, and would find one
slow call where a thousand users waited ("coordinated omission"). They are kept in an HDR histogram: counts in buckets
of 0.1 % of the value, from a microsecond to an hour, so a long run takes no more memory than a short one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from hdrh.histogram import HdrHistogram

_US_MAX: Final = 3_600_000_000
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of a run, in ms."""

    count: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class LatencyHistogram:
    """Latencies of any number of calls, each to three digits."""

    __slots__ = ("_histogram",)

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        self._histogram = HdrHistogram(1, _US_MAX, _DIGITS)
        for each in seconds:
            self.record(each)

    def record(self, seconds: float) -> None:
        """Take a latency in; what is below nothing counts as nothing, and what is above an hour as an hour."""
        self._histogram.record_value(min(_US_MAX, max(0, round(seconds * 1e6))))

    @property
    def count(self) -> int:
        count: int = self._histogram.get_total_count()
        return count

    def percentile_ms(self, percent: float) -> float:
        """Return the latency that ``percent`` percent of all latencies do not exceed."""
        us: int = self._histogram.get_value_at_percentile(percent)
        return us / 1000

    def summary(self) -> Latencies:
        """Return the percentiles that matter.

        >>> LatencyHistogram(i / 1000 for i in range(1, 1001)).summary()
        Latencies(count=1000, p50_ms=500.223, p99_ms=990.207, p999_ms=999.423, max_ms=1000.447)
        """
        return Latencies(self.count, *map(self.percentile_ms, (50.0, 99.0, 99.9, 100.0)))

    def curve(self) -> list[tuple[float, float]]:
        """Return percents and their ms, ever denser towards the slowest call."""
        steps = self._histogram.get_percentile_iterator(2)
        return [(step.percentile_level_iterated_to, step.value_iterated_to / 1000) for step in steps]


def latencies(seconds: Iterable[float]) -> Latencies:
    """Sum up the latencies of at least one call."""
    return LatencyHistogram(seconds).summary()


async def open_loop(call: Callable[[int], Awaitable[None]], rate: float, count: int) -> list[float]:
    """Start ``count`` calls, ``rate`` a second, and return the seconds from each one's intended start to its end.

    Raises:
        Exception: What a call raises; the others are cancelled.
    """
    seconds = [0.0] * count
    start = time.perf_counter()

    async def timed(number: int) -> None:
        await call(number)
        seconds[number] = time.perf_counter() - (start + number / rate)

    calls: list[asyncio.Task[None]] = []
    try:
        for number in range(count):
            wait_s = start + number / rate - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            calls.append(asyncio.create_task(timed(number)))
        await asyncio.gather(*calls)
    finally:
        for each in calls:
            each.cancel()
    return seconds
