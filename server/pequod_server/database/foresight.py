"""Loads what reads will lack, since changes came that they select by: then no read has to wait for it.

feed      s|ann|bob      s|liz|bob s|eve|dan               ann's timeline, which was read, will need bob's posts
load      [p|bob|]                  [p|dan|]               one load at a time, of all that was foreseen meanwhile
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pequod.engine import Engine, Loadable, PequodError, Range
from pequod_server.backing import Changes, Event

#: For a commit with more changes, which are looked at in one turn, reads load what they need.
_CHANGES_MAX: Final = 1024
#: While more ranges wait for a load, nothing is foreseen.
_WANTED_MAX: Final = 4096


class Foresight:
    """Loads ahead of the reads of one engine.

    Args:
        load: Loads what is lacking.

    Invariants:
        1. One load is under way while ``_wanted`` is not empty.
    """

    __slots__ = ("_engine", "_load", "_task", "_wanted")

    def __init__(self, engine: Engine, load: Callable[[Sequence[Loadable]], Awaitable[None]]) -> None:
        self._engine = engine
        self._load = load
        self._wanted: dict[Range, None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, event: Event) -> None:
        """Begin to load what reads will lack since an event of a database was taken in."""
        if isinstance(event, Changes) and len(event.changes) <= _CHANGES_MAX and len(self._wanted) < _WANTED_MAX:
            self._wanted |= dict.fromkeys(self._engine.foresee([change.key for change in event.changes]))
        if self._wanted and self._task is None:
            self._task = asyncio.create_task(self._run(), name="pequod load ahead of reads")

    async def _run(self) -> None:
        try:
            while self._wanted:
                wanted = list(self._wanted)
                self._wanted.clear()
                try:
                    await self._load(wanted)
                except PequodError:
                    # The read that needs it says why it cannot be loaded.
                    continue
                for one in wanted:
                    self._engine.release(*one)
        finally:
            self._task = None

    async def stop(self) -> None:
        """End the load under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
