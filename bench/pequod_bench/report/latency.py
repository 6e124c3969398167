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


def histogram(seconds: Iterable[float]) -> HdrHistogram:
    """Keep each latency to three digits, as nothing if it is below nothing, and as an hour if it is above an hour."""
    kept = HdrHistogram(1, _US_MAX, _DIGITS)
    for each in seconds:
        kept.record_value(min(_US_MAX, max(0, round(each * 1e6))))
    return kept


def percentiles(kept: HdrHistogram) -> Latencies:
    """Return the percentiles that matter.

    >>> percentiles(histogram(i / 1000 for i in range(1, 1001)))
    Latencies(count=1000, p50_ms=500.223, p99_ms=990.207, p999_ms=999.423, max_ms=1000.447)
    """
    return Latencies(
        kept.get_total_count(), *(kept.get_value_at_percentile(percent) / 1000 for percent in (50.0, 99.0, 99.9, 100.0))
    )


def curve(kept: HdrHistogram) -> list[tuple[float, float]]:
    """Return percents and their ms, ever denser towards the slowest call."""
    steps = kept.get_percentile_iterator(2)
    return [(step.percentile_level_iterated_to, step.value_iterated_to / 1000) for step in steps]


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
