"""Signs of life: connections that give none are closed, whether they say nothing for long or have never begun."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

#: A connection that has said nothing at all in this time is none.
_GREETING_S: Final = 20.0
#: The least and the greatest time between two looks at all connections.
_LOOK_MIN_S: Final = 0.05
_LOOK_MAX_S: Final = 5.0


class Living(Protocol):
    """A connection, as far as its life is concerned."""

    opened_s: float

    @property
    def read_s(self) -> float:
        """When something came last."""

    @property
    def pinged_s(self) -> float | None:
        """When it was asked, if nothing has come since."""

    def ping(self) -> None:
        """Ask for a sign of life."""

    def abort(self) -> None:
        """Close at once."""


class Keeping:
    """Looks at all connections again and again.

    Args:
        keepalive_s: A connection that has said nothing for so long is asked; 0: none is.
        timeout_s: It has this time to answer.
    """

    def __init__(self, keepalive_s: float, timeout_s: float, connections: Iterable[Living]) -> None:
        self._keepalive_s = keepalive_s
        self._timeout_s = timeout_s
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look from now on."""
        times_s = [_GREETING_S, self._keepalive_s, self._timeout_s] if self._keepalive_s else [_GREETING_S]
        pause_s = min(max(min(times_s) / 4, _LOOK_MIN_S), _LOOK_MAX_S)

        def again() -> None:
            self.look(loop.time())
            self._timer = loop.call_later(pause_s, again)

        self._timer = loop.call_later(pause_s, again)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self, now_s: float) -> None:
        """Ask connections that say nothing, and close those that do not answer."""
        for connection in tuple(self._connections):
            if connection.pinged_s is not None:
                if now_s - connection.pinged_s > self._timeout_s:
                    connection.abort()
            elif connection.read_s == connection.opened_s and now_s - connection.opened_s > _GREETING_S:
                connection.abort()
            elif self._keepalive_s and now_s - connection.read_s >= self._keepalive_s:
                connection.ping()
