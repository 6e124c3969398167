"""The rows of a server's ranges at one revision, though tasks read them later, while other clients write.

    revision      R ------------ read ------------ E
    watches       [ changes of each range, (key, old, new) ]
    key unchanged after R: what was read               key changed: the old value of its first change after R

All watches begin at about the same moment. R is the revision at which the last one begins; the server ends a batch of
the other watches' changes there. E is a revision after the reading: when each watch has delivered its changes up to E,
none is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

from pequod.client import WatchEvent
from pequod.client.background import BackgroundLoop
from pequod.errors import NotWatchableError
from pequod.language.ranges import Range
from pequod_spark.connection import Connection

_PROGRESS_S: Final = 0.1


class Follower:
    """Follows ranges from one revision on, in its own thread.

    Raises:
        WatchCompactedError: From any method: the server did not keep the changes, or joins were installed or dropped.
        UnavailableError: From any method: the server cannot be reached.
    """

    def __init__(self, connection: Connection, ranges: Sequence[Range]) -> None:
        self._client = connection.async_client()
        self._ranges = ranges
        #: The revision at which the last of the watches began.
        self.revision = 0
        #: Why a range cannot be followed.
        self.unwatchable: dict[Range, str] = {}
        self._background = BackgroundLoop("pequod follower")
        self._tasks: list[asyncio.Task[None]] = []
        self._began: dict[Range, int] = {}
        self._seen: dict[Range, int] = {}
        self._news = asyncio.Event()
        self._may_go_on = asyncio.Event()
        self._first_old: dict[bytes, bytes | None] = {}

    def __enter__(self) -> Self:
        try:
            self._background.run(self._start())
        except BaseException:
            self._background.close(self._close)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.close(self._close)

    def before_changes(self, revision: int) -> dict[bytes, bytes | None]:
        """Return the keys that changed since the start, each with its value at the start, None where it was absent.

        Args:
            revision: Wait until the watches have delivered all changes up to this one.
        """
        return self._background.run(self._until(revision))

    async def _start(self) -> None:
        self._tasks = [asyncio.create_task(self._follow(one)) for one in self._ranges]
        while len(self._began) + len(self.unwatchable) < len(self._ranges):
            await self._wait()
        self.revision = max(self._began.values(), default=0)
        self._may_go_on.set()

    async def _follow(self, one: Range) -> None:
        try:
            async with aclosing(self._client.watch(*one, progress_s=_PROGRESS_S)) as events:
                async for event in events:
                    if one not in self._began:
                        self._began[one] = event.revision
                        self._news.set()
                        # Changes that come meanwhile wait at the server.
                        await self._may_go_on.wait()
                    self._take(one, event)
        except NotWatchableError as error:
            self.unwatchable[one] = str(error)
        finally:
            self._news.set()

    def _take(self, one: Range, event: WatchEvent) -> None:
        if event.revision > self.revision:
            for key, old, _ in event.changes:
                self._first_old.setdefault(key, old)
        self._seen[one] = event.revision
        self._news.set()

    async def _until(self, revision: int) -> dict[bytes, bytes | None]:
        while any(self._seen.get(one, -1) < revision for one in self._began):
            await self._wait()
        return dict(self._first_old)

    async def _wait(self) -> None:
        """Wait until a watch delivers something, and raise the error that ended a watch."""
        # A watch that ends notifies as well, so an end before or during this wait is not missed.
        await self._news.wait()
        self._news.clear()
        for task in self._tasks:
            if task.done():
                task.result()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
