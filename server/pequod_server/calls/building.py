"""The server builds the joins that replace others, in slices between calls.

    slice | calls of others | slice | ... | switch | slice | ...

One that waits for other servers stops before the switch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, MissingError, PequodError, Replacement
from pequod_server.backing.turns import ended
from pequod_server.calls.served import ServedEngine

log = logging.getLogger("pequod.server")

#: A slice takes about as long as a read with its way, so that reads beside it take twice as long at the most: see
#: `pequod bench replace`. After it, calls have the loop for a while: one takes several turns of the loop.
SLICE_S: Final = 0.0001
PAUSE_S: Final = 0.001
#: Calls have this number of turns at the least: on a busy machine the pause may be over before the process runs again.
_TURNS: Final = 8
#: How many replacements that ended are still listed.
ENDED_MAX: Final = 16


class Shown:
    """A replacement as callers see it."""

    def __init__(self, replacement: Replacement, shown_id: int) -> None:
        self.id = shown_id
        self.replacement = replacement
        self._begun_s = time.monotonic()
        self._ended_s: float | None = None

    def message(self) -> pb.Replacement:
        """Return it as a message."""
        found = self.replacement
        if found.ended is not None and self._ended_s is None:
            self._ended_s = time.monotonic()
        return pb.Replacement(
            id=self.id,
            join=found.name,
            text=str(found.new.spec),
            ranges_built=found.ranges_built,
            ranges_expected=found.ranges_expected,
            age_s=(time.monotonic() if self._ended_s is None else self._ended_s) - self._begun_s,
            in_place=found.is_in_place,
            ended=found.ended or "",
        )


class BuildingInSlices:
    """Builds, switches and clears, as long as there is something to do."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._engine: Engine = served.engine
        #: Called when the joins are others.
        self.on_joins: Callable[[], None] = _nothing
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Go on in the background; return what ends when there is nothing more to do now."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_on(), name="pequod replacement")
        return self._task

    async def stop(self) -> None:
        """End what is under way; the old join stays."""
        if self._task is not None:
            await ended((self._task,))
        if (replacement := self._engine.replacement) is not None:
            self._engine.end_replacement(replacement, "the server is stopping")

    async def _go_on(self) -> None:
        while True:
            replacement = self._engine.replacement
            if replacement is None:
                more = self._slice(time.monotonic())
            else:
                old = replacement.old
                try:
                    more = await self._served.read(self._slice, [(old.first, old.last)], None)
                except PequodError as error:
                    more = not replacement.waits
                    self._give_up(replacement, error)
            if not more:
                return
            await asyncio.sleep(PAUSE_S)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    def _give_up(self, replacement: Replacement, error: PequodError) -> None:
        """Build no more: end a replacement, unless other servers wait for it; reads compute the rest of that one."""
        if not replacement.waits:
            self._engine.end_replacement(replacement, str(error))
            return
        if not replacement.is_built:
            extra = {"join": replacement.name, "reason": str(error)}
            log.warning("a join is not built before it takes its place; reads compute it then", extra=extra)
        replacement.is_built = True

    def _slice(self, now: float) -> bool:
        """Go on for a slice; return whether there is more to do."""
        begun_s = time.perf_counter()
        is_first = True
        while True:
            replacement = self._engine.replacement
            try:
                more = self._engine.replace_some(now=now)
            except MissingError:
                if is_first:
                    raise
                # The next slice waits for it: its attempts are counted anew.
                return True
            is_first = False
            if replacement is not None and replacement.is_in_place:
                # In the turn of the switch: no answer that shows it leaves before it is kept.
                self.on_joins()
            if not more or time.perf_counter() >= begun_s + SLICE_S:
                return more


def _nothing() -> None:
    return None
