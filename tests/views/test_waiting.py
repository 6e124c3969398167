"""Events that wait for a transaction: how many are taken from a watch, and what becomes of its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from pequod_views.waiting import WaitingEvents

from pequod.answers.changes import Change
from pequod.client.watch_ranges import RangesEvent


class Watch:
    """A watch of which each event has one change."""

    def __init__(self, count: int) -> None:
        self.taken = 0
        self._count = count

    async def events(self) -> AsyncIterator[RangesEvent]:
        for number in range(self._count):
            self.taken += 1
            yield RangesEvent(number, 1, changes={0: [Change(b"k", None, b"v")]})
        raise ConnectionError("the server is away")


async def test_the_watch_waits_while_enough_changes_do() -> None:
    watch, waiting = Watch(10), WaitingEvents(changes_max=3)
    filling = asyncio.create_task(waiting.fill(watch.events()))
    revisions, steps = list[int](), list[int]()
    with pytest.raises(ConnectionError):
        while True:
            events = await waiting.take()
            revisions += [event.revision for event in events]
            steps.append(len(events))
            for _ in range(20):
                await asyncio.sleep(0)
            # Three wait, and a fourth that has no room.
            assert watch.taken <= len(revisions) + 4
    await filling
    assert revisions == list(range(10)), "all that came before the end was taken in"
    assert max(steps) == 3, "what waits is taken at once"
