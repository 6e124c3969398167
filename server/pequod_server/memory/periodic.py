"""A task that does something again and again until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Periodic:
    """Does some work, waits, and does it again.

    Args:
        work: Must not raise.
        pause_s: Returns how long it waits before the next time.
        name: The task's.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], pause_s: Callable[[], float], name: str) -> None:
        self._work = work
        self._pause_s = pause_s
        self._name = name
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._task is not None

    def start(self) -> None:
        """Begin, after a first wait."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """End, in the middle of the work if need be; without effect if it does not run."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            await self._work()
