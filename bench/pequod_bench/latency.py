"""Latencies of calls that start by the clock, whether or not the earlier ones are done.

intended   |    |    |    |    |
call       |--| |-----------------|        latency: from the intended start to the end,
                |    |-----------|         so that a server that stalls is charged for all who waited
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of a run, in ms."""

    count: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def latencies(seconds: Sequence[float]) -> Latencies:
    """Sum up the latencies of at least one call.

    >>> latencies([i / 1000 for i in range(1, 1001)])
    Latencies(count=1000, p50_ms=500.0, p99_ms=990.0, p999_ms=999.0, max_ms=1000.0)
    """
    ordered = sorted(seconds)

    def percentile(part: float) -> float:
        return 1000 * ordered[max(0, math.ceil(part * len(ordered)) - 1)]

    return Latencies(len(ordered), percentile(0.5), percentile(0.99), percentile(0.999), 1000 * ordered[-1])


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
