"""Indexes over records that reads lack, made slice by slice: one at a time, once for all the reads that wait for it.

read    engine.get -> MissingError(indexes) ------ waits ------> engine.get
make                   slice | calls of others | slice | calls of others | whole
"""

from __future__ import annotations

import asyncio
import time

from pequod.engine import Engine, Unindexed
from pequod_server.backing.turns import SLICE_S, ended


class Indexing:
    """Makes the indexes that reads of an engine lack."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: A slice of each in every turn of the loop would add up.
        self._one_at_a_time = asyncio.Lock()
        self._making: dict[Unindexed, asyncio.Task[None]] = {}

    async def make(self, lacking: Unindexed) -> None:
        """Wait until an index is made, or no join needs it any more.

        A reader that gives up leaves it to the others, and to those to come.

        Raises:
            LimitExceededError: There is no memory for it.
        """
        task = self._making.get(lacking)
        if task is None:
            task = asyncio.create_task(self._make(lacking), name="pequod index")
            self._making[lacking] = task
            task.add_done_callback(lambda done: self._made(lacking, done))
        await asyncio.shield(task)

    async def _make(self, lacking: Unindexed) -> None:
        async with self._one_at_a_time:
            begun_s = time.perf_counter()
            while self._engine.index_some(lacking):
                taken_s = time.perf_counter() - begun_s
                if taken_s >= SLICE_S:
                    # One call takes several turns of the loop; each would wait for a slice if they were not given.
                    await asyncio.sleep(taken_s)
                    begun_s = time.perf_counter()

    def _made(self, lacking: Unindexed, task: asyncio.Task[None]) -> None:
        del self._making[lacking]
        # All readers may have given up: then nobody else asks why it failed.
        if not task.cancelled():
            task.exception()

    async def stop(self) -> None:
        """End what is under way; the rows that are made so far stay."""
        await ended(tuple(self._making.values()))
