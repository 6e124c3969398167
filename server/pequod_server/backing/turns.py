"""Long work in slices: every few milliseconds the event loop has its turn.

turns = Turns()
for row in rows:
    take(row)
    if turns.are_due():
        await turns.give()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Generator, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")

#: The length of a slice. Several of them and the calls of clients share one turn of the loop, which should be 20 ms.
#: Tests make it small.
SLICE_S = 0.003
#: Small pieces of work that are done in one call of the engine, before the time is looked at: half a millisecond. Tests
#: make it small.
WORK_MAX = 4096


class Turns:
    """Measures the slices of one long work."""

    __slots__ = ("_end_s", "work_max")

    def __init__(self) -> None:
        #: See `WORK_MAX`.
        self.work_max = WORK_MAX
        self._end_s = time.perf_counter() + SLICE_S

    def are_due(self) -> bool:
        """Return whether the slice is over. It costs 0.1 µs, so cheap rows are processed several at a time."""
        return time.perf_counter() >= self._end_s

    async def give(self) -> None:
        """Let the event loop turn once, and begin a slice."""
        await asyncio.sleep(0)
        self._end_s = time.perf_counter() + SLICE_S

    async def give_if_due(self) -> None:
        """Do so if the slice is over; after a piece of work, as the call costs more than to ask for each cheap row."""
        if self.are_due():
            await self.give()


async def in_turns(steps: Generator[None, None, Result], turns: Turns) -> Result:
    """Run steps to their end and return what they return; between slices of them the event loop has its turn."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        await turns.give_if_due()


async def all_of(awaitables: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, and raise the error of the first that failed."""
    outcomes = await asyncio.gather(*awaitables, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
