"""How long the event loop did not turn: the longest turn of a stretch of a test.

    async with turns() as longest:
        ...
    assert longest.s < 0.2

The processor's time of this thread is measured, and not the clock on the wall: the machine has other things to do.
What another thread does while it holds the interpreter's lock is not in it. The collector is kept as a server keeps it:
by itself it would look at all that a run of the suite has left, for 0.2 s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pequod_bench.collector import kept

_TICK_S = 0.001


@dataclass
class Longest:
    """The longest turn so far, in seconds of this thread's processor time, and in seconds."""

    s: float = 0.0
    wall_s: float = 0.0


@asynccontextmanager
async def turns() -> AsyncIterator[Longest]:
    """Look at the event loop for as long as the block lasts."""
    longest = Longest()

    async def tick() -> None:
        before_s, wall_s = time.thread_time(), time.perf_counter()
        while True:
            await asyncio.sleep(_TICK_S)
            now_s, now_wall_s = time.thread_time(), time.perf_counter()
            longest.s = max(longest.s, now_s - before_s)
            longest.wall_s = max(longest.wall_s, now_wall_s - wall_s - _TICK_S)
            before_s, wall_s = now_s, now_wall_s

    with kept("tamed"):
        task = asyncio.create_task(tick())
        await asyncio.sleep(_TICK_S)
        try:
            yield longest
            # The turn that is under way counts, too.
            await asyncio.sleep(2 * _TICK_S)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
