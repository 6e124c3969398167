"""What reads wait at while a commit of a database is half applied.

commit of A  ----[ slice ][ slice ][ slice ]---->
gate of A         closed                  open
commit of B       ------[ slice ][ slice ]---------->
gate of B                closed          open
gates        all open | some closed             | all open: watches are settled
reads of what comes from A wait for A's gate; writes, and reads of other keys, go on
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gates:
    """The gates of all databases behind one engine."""

    __slots__ = ("_then", "closed")

    def __init__(self) -> None:
        #: The closed gates. Each batch of commands looks at them.
        self.closed: dict[Gate, None] = {}
        self._then: dict[Callable[[], None], None] = {}

    @property
    def is_closed(self) -> bool:
        """Whether some gate is closed."""
        return bool(self.closed)

    async def opened(self) -> None:
        """Wait until all gates are open. When this returns, they are."""
        while self.closed:
            await next(iter(self.closed)).opened()

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when all are open, before any read goes on; once, however often it is asked for."""
        self._then[callback] = None

    def has_opened(self, gate: Gate) -> None:
        """Note that a gate has opened; if it is the last one, what is to be done before reads is done now."""
        del self.closed[gate]
        if self.closed:
            return
        then, self._then = self._then, {}
        for callback in then:
            callback()


class Gate:
    """Open, but while a commit is applied that takes more than one turn of the event loop."""

    __slots__ = ("_gates", "_opened", "is_closed")

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self.is_closed = False
        self._opened = asyncio.Event()

    def close(self) -> None:
        """Have reads wait; nothing changes if they do already."""
        self.is_closed = True
        self._gates.closed[self] = None

    def open(self) -> None:
        """Let reads go on."""
        if not self.is_closed:
            return
        self.is_closed = False
        self._gates.has_opened(self)
        opened, self._opened = self._opened, asyncio.Event()
        opened.set()

    async def opened(self) -> None:
        """Wait until the gate is open. When this returns, it is."""
        while self.is_closed:
            await self._opened.wait()
