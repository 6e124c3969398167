"""Save a snapshot at each end of an interval.

    started -- every_s -- save -- every_s -- save ..     one that fails is logged and counted, and the next is tried

The interval goes from the end of a save to the begin of the next, so that saves that take long do not fill the server's
time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from pequod.errors import SnapshotError
from pequod_server.snapshots.saving import Snapshots

log = logging.getLogger("pequod.snapshot")


class SnapshotSchedule:
    """The regular saves of one server.

    Args:
        every_s: The seconds between saves; 0: none are made.
    """

    def __init__(self, snapshots: Snapshots, every_s: float) -> None:
        self._snapshots = snapshots
        #: The seconds between saves; 0: none are made.
        self.every_s = every_s
        self._is_ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._started_s: float | None = None

    @property
    def saved_s(self) -> float | None:
        """When the latest file was saved; while there is none, when the saves were begun; None without either."""
        saved_s = self._snapshots.saved_s
        return self._started_s if saved_s is None else saved_s

    def start(self) -> None:
        """Begin the saves."""
        if self.every_s and self._task is None:
            self._started_s = time.time()
            self._task = asyncio.create_task(self._run(), name="pequod snapshots")

    async def end(self) -> None:
        """End the saves; one that is under way is stopped, and leaves nothing."""
        self._is_ending.set()
        await self._snapshots.stop_saving()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._is_ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_ending.wait(), self.every_s)
            if self._is_ending.is_set():
                return
            try:
                await self._snapshots.save()
            except SnapshotError as error:
                if not self._is_ending.is_set():
                    log.error(  # noqa: TRY400 - the reason says it all
                        "the snapshot is not saved", extra={"reason": str(error), "again_in_s": self.every_s}
                    )
