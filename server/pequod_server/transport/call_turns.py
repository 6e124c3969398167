"""Calls begin in turns: a few in each turn of the event loop, and one of a connection before the next of it.

A read of a socket may bring a thousand calls. If all of them began at once, every other connection would wait for as
long as they take; and so would timers, and the feed of the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: How many calls begin in one turn: a millisecond or so.
_CALLS_A_TURN: Final = 32
#: Calls that begin outside of turns begin again after this time.
_TURN_S: Final = 0.001

#: Begins the next call of a connection; returns whether more of them may begin.
Begin = Callable[[], bool]


class CallTurns:
    """The connections of a server with calls that have not begun.

    Invariants:
        1. A turn is on its way if a connection waits.
    """

    __slots__ = ("_is_coming", "_left", "_loop", "_turned_s", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Begin, None] = {}
        self._is_coming = False
        #: How many calls may begin before the next turn, and when the last turn was.
        self._left = _CALLS_A_TURN
        self._turned_s = loop.time()

    def add(self, begin: Begin) -> None:
        """Let a connection begin calls from the next turn on."""
        self._waiting[begin] = None
        if not self._is_coming:
            self._is_coming = True
            self._loop.call_soon(self._go)

    def begin(self, begin: Begin, now_s: float) -> None:
        """Let a connection begin its calls at once, if nobody waits and it is not much; otherwise as `add`.

        It spares a call that comes alone the round through the event loop.
        """
        if now_s - self._turned_s > _TURN_S:
            self._left, self._turned_s = _CALLS_A_TURN, now_s
        while self._left and not self._waiting:
            self._left -= 1
            if not begin():
                return
        self.add(begin)

    def remove(self, begin: Begin) -> None:
        """Forget a connection."""
        self._waiting.pop(begin, None)

    def _go(self) -> None:
        for _ in range(_CALLS_A_TURN):
            if not self._waiting:
                break
            begin = next(iter(self._waiting))
            del self._waiting[begin]
            if begin():
                self._waiting[begin] = None
        self._is_coming = bool(self._waiting)
        if self._is_coming:
            self._loop.call_soon(self._go)
