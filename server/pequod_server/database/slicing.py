"""Indexes over records and long ranges of computed rows that reads lack: made slice by slice, once for all who wait.

read    engine.get -> MissingError(indexes) ------ waits ------> engine.get
make                   slice | calls of others | slice | calls of others | whole
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from pequod.engine import Engine, Lacking, MissingError, NextGroups, Uncomputed, Unindexed
from pequod_server.backing.turns import SLICE_S, ended

Makeable: TypeAlias = Unindexed | Uncomputed


class Slicing:
    """Makes what reads of an engine lack and it can make itself.

    Args:
        load: Loads, or makes, what a slice lacks.
    """

    def __init__(
        self, engine: Engine, load: Callable[[Iterable[Lacking], Sequence[NextGroups]], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._load = load
        #: A slice of each in every turn of the loop would add up.
        self._one_at_a_time = asyncio.Lock()
        self._making: dict[Makeable, asyncio.Task[None]] = {}

    async def make(self, lacking: Makeable) -> None:
        """Wait until an index is made or a range computed, or no join needs it any more.

        A reader that gives up leaves it to the others, and to those to come.

        Raises:
            LimitExceededError: There is no memory for it.
            BackingUnavailableError, UnassignedKeyError: What it needs of a database cannot be loaded.
        """
        task = self._making.get(lacking)
        if task is None:
            task = asyncio.create_task(self._make(lacking), name="pequod making")
            self._making[lacking] = task
            task.add_done_callback(lambda done: self._made(lacking, done))
        await asyncio.shield(task)

    async def _make(self, lacking: Makeable) -> None:
        go_on = self._slices(lacking)
        while True:
            async with self._one_at_a_time:
                try:
                    await _in_turns(go_on)
                except MissingError as error:
                    missing = error.with_traceback(None)
                else:
                    return
            await self._load(missing.lacking, missing.next_groups)

    def _slices(self, lacking: Makeable) -> Callable[[], bool]:
        """Return what makes one slice more, and returns whether there are more."""
        engine = self._engine
        if isinstance(lacking, Unindexed):
            return partial(engine.index_some, lacking)
        at: bytes | None = lacking.first

        def compute() -> bool:
            nonlocal at
            assert at is not None, "it returned that there is more"
            at = engine.compute_some(lacking, at, now=time.monotonic())
            return at is not None

        return compute

    def _made(self, lacking: Makeable, task: asyncio.Task[None]) -> None:
        del self._making[lacking]
        # All readers may have given up: then nobody else asks why it failed.
        if not task.cancelled():
            task.exception()

    async def stop(self) -> None:
        """End what is under way; what is made so far stays."""
        await ended(tuple(self._making.values()))


async def _in_turns(go_on: Callable[[], bool]) -> None:
    begun_s = time.perf_counter()
    while go_on():
        taken_s = time.perf_counter() - begun_s
        if taken_s >= SLICE_S:
            # One call takes several turns of the loop; each would wait for a slice if they were not given.
            await asyncio.sleep(taken_s)
            begun_s = time.perf_counter()
