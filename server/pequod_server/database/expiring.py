"""Keys that are due, removed between the calls: some before each command, the others by a task in slices.

command    tell the time | a few keys | the command
task       ... until the next deadline | slice | calls of others | slice | ...
long read  engine.scan -> MissingError(due) ----- waits for the task -----> engine.scan
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from pequod.engine import Due, Engine
from pequod_server.backing.turns import SLICE_S, ended

#: The most keys that are removed before a command, which takes 30 µs; and in a slice before the time is looked at.
_AT_ONCE: Final = 16
_PIECE: Final = 64
#: The task looks for deadlines at least once in this time.
_TICK_S: Final = 0.1


def wall_ms() -> int:
    """Return the present instant, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Expiring:
    """Tells an engine what time it is, and has it remove what is due.

    Args:
        clock_ms: Returns the present instant.
    """

    def __init__(self, engine: Engine, clock_ms: Callable[[], int] = wall_ms) -> None:
        self._engine = engine
        self._deadlines = engine.deadlines
        self.clock_ms = clock_ms
        self._task: asyncio.Task[None] | None = None

    def pass_due(self) -> None:
        """Tell the time, and remove a few keys that are due; reads remove those of their own range themselves."""
        now_ms = self.clock_ms()
        if self._deadlines.tell(now_ms):
            self._engine.expire_due(now_ms, _AT_ONCE)

    @property
    def lag_ms(self) -> int:
        """How long the earliest key that is due has been so; 0: none is."""
        first_ms = self._deadlines.first_ms
        return 0 if first_ms is None else max(0, self.clock_ms() - first_ms)

    def start(self) -> None:
        """Remove what is due though no command comes."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="pequod expiry")

    async def stop(self) -> None:
        """End; what is due stays until a command comes."""
        if self._task is not None:
            await ended((self._task,))
            self._task = None

    async def gone(self, due: Due) -> None:
        """Wait until the keys are removed that were due at an instant."""
        while self._deadlines.tell(min(due.at_ms, self.clock_ms())):
            await self._slice()

    async def _run(self) -> None:
        while True:
            if self._deadlines.tell(self.clock_ms()):
                await self._slice()
                continue
            first_ms = self._deadlines.first_ms
            wait_s = _TICK_S if first_ms is None else (first_ms - self._deadlines.now_ms) / 1000
            await asyncio.sleep(min(wait_s, _TICK_S))

    async def _slice(self) -> None:
        """Remove what is due for some milliseconds, and let the others have their turn."""
        engine, end_s = self._engine, time.perf_counter() + SLICE_S
        while engine.expire_due(self.clock_ms(), _PIECE) == _PIECE and time.perf_counter() < end_s:
            pass
        await asyncio.sleep(0)
