"""Questions that readers of one moment share, and the counts of the levels that readers ask for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from pequod_server.backing import Place

#: Upper ends of the histogram of waits, in seconds.
WAIT_ENDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, inf)


@dataclass(slots=True)
class LevelCounters:
    """Counts of the levels that reads asked for since the start."""

    #: Returns how many hot calls and batches have read; none of these asked for a level.
    hot_reads: Callable[[], int] = int
    #: Calls and batches that were not hot, by their levels.
    reads: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("any", "after", "latest", "max_age"), 0))
    #: Calls and batches whose level could not be had, by the class of the error.
    refusals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("StaleError", "TokenLostError"), 0))
    #: How many waited, by the first of `WAIT_ENDS` that is not less; and the sum of the waits.
    waits: list[int] = field(default_factory=lambda: [0] * len(WAIT_ENDS))
    wait_s: float = 0.0
    #: Questions that the database was asked.
    questions: int = 0

    def all_reads(self) -> dict[str, int]:
        """Return how many calls and batches have read, hot ones too, by their levels."""
        return self.reads | {"any": self.reads["any"] + self.hot_reads()}

    def waited(self, seconds: float) -> None:
        """Count a wait."""
        self.wait_s += seconds
        self.waits[next(at for at, end in enumerate(WAIT_ENDS) if seconds <= end)] += 1


class Questions:
    """Asks the database one question at a time; readers that come while it is asked share the next question."""

    def __init__(self, question: Callable[[], Awaitable[Place]], on_answer: Callable[[float, Place], None]) -> None:
        self._question = question
        self._on_answer = on_answer
        self._last: asyncio.Task[Place] | None = None
        self._next: asyncio.Task[Place] | None = None

    async def ask(self) -> Place:
        """Return the answer to a question that is asked from now on.

        Raises:
            BackingUnavailableError, SchemaError: As the database says.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._last), name="pequod freshness")
            # Readers may all be gone when it fails.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _ask(self, last: asyncio.Task[Place] | None) -> Place:
        if last is not None and not last.done():
            await asyncio.wait({last})
        self._last, self._next = self._next, None
        begun_s = time.monotonic()
        place = await self._question()
        self._on_answer(begun_s, place)
        return place

    def stop(self) -> None:
        """Ask nothing more."""
        for task in (self._last, self._next):
            if task is not None:
                task.cancel()
