"""The statistics of an engine, collected while it goes on serving."""

from __future__ import annotations

import asyncio
import time

from pequod.engine import Engine, Statistics


async def collected(engine: Engine) -> Statistics:
    """Collect the statistics; others have their turn about every millisecond."""
    steps = engine.statistics_in_steps(now=time.monotonic())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            statistics: Statistics = end.value
            return statistics
        await asyncio.sleep(0)
