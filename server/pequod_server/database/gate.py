"""What reads wait at while a commit of the database is half applied.

commit   ----[ slice ][ slice ][ slice ]---->
gate         closed                  open
reads of what comes from the database wait; writes, and reads of other keys, go on
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    """Open, but while a commit is applied that takes more than one turn of the event loop."""

    __slots__ = ("_opened", "_then", "is_closed")

    def __init__(self) -> None:
        #: Looked at by each batch of commands.
        self.is_closed = False
        self._opened = asyncio.Event()
        self._then: dict[Callable[[], None], None] = {}

    def close(self) -> None:
        """Have reads wait; nothing changes if they do already."""
        self.is_closed = True

    def open(self) -> None:
        """Let reads go on; what is to be done before them is done now."""
        if not self.is_closed:
            return
        self.is_closed = False
        then, self._then = self._then, {}
        for callback in then:
            callback()
        opened, self._opened = self._opened, asyncio.Event()
        opened.set()

    async def opened(self) -> None:
        """Wait until the gate is open. When this returns, it is."""
        while self.is_closed:
            await self._opened.wait()

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the gate opens, before any read goes on; once, however often it is asked for."""
        self._then[callback] = None
