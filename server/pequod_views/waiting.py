"""The events of a watch that wait for the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pequod.client.watch_ranges import RangesEvent


class WaitingEvents:
    """Takes events as they come, up to a number of changes; beyond it the stream waits, and then the server.

    Invariants:
        1. ``_change_count`` is the number of changes in ``_events``.
    """

    def __init__(self, changes_max: int) -> None:
        self._changes_max = changes_max
        self._events: list[RangesEvent] = []
        self._change_count = 0
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def fill(self, events: AsyncIterator[RangesEvent]) -> None:
        """Take events until the watch ends; its error is kept for `take`."""
        try:
            async for event in events:
                while self._change_count >= self._changes_max:
                    self._room.clear()
                    await self._room.wait()
                self._events.append(event)
                self._change_count += event.change_count
                self._news.set()
        except Exception as error:
            self._error = error
        else:
            self._error = EOFError("the watch has ended")
        self._news.set()

    async def take(self) -> list[RangesEvent]:
        """Return all waiting events, one at least.

        Raises:
            Exception: The one with which the watch ended, once all events before it were taken.
        """
        while not self._events:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        events, self._events, self._change_count = self._events, [], 0
        self._room.set()
        return events
