"""How far the engine has followed the database, and the callers that wait until it has come further.

    event   ----[ slice ][ slice ]          the engine has all of it: move(position), in the same turn of the loop
    token   t41 t41 t41  t41     t42        what replies of that turn show is what the database had at their token
    waiters                      woken

A position has a meaning only in its timeline. After a failover the database has left the earlier timeline at some
position: what was before it is there still, what was behind it is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from pequod.freshness import Mark, Token
from pequod_server.backing import BackingUnavailableError, History, Place

#: Names the database in errors whose reasons are not meant for clients.
FEED = "the feed of the database"


class Reached(Enum):
    """Where a place lies, as the engine sees it."""

    #: The engine has all of the database up to there.
    YES = "yes"
    #: The engine may come to it.
    NOT_YET = "not yet"
    #: The database has failed over before it came there, as far as is known: nothing will come to it.
    LOST = "lost"


class Followed:
    """The state of the database that the engine shows.

    Invariants:
        1. The rows that the engine has of the database are those of the database at ``position``, but while a commit is
           half applied: then reads of them wait.
    """

    __slots__ = ("_mark", "_moved", "_waiters", "failure", "history", "position", "shown", "token")

    def __init__(self) -> None:
        #: The history of the position; None until the feed stands.
        self.history: History | None = None
        self._mark: Mark | None = None
        #: None until the feed stands.
        self.position: int | None = None
        #: The position for tokens, which may be beyond the other one: see `Changes.shown`.
        self.shown = 0
        #: The token of the state, as bytes; empty until the feed stands.
        self.token = b""
        #: Why the feed ended, which it should not.
        self.failure = ""
        self._waiters = 0
        self._moved = asyncio.Event()

    def move(self, position: int, *, history: History | None = None, shown: int | None = None) -> None:
        """Note that the engine has everything up to a position, and wake the callers that wait."""
        is_elsewhere = False
        if history is not None and history != self.history:
            self.history, self.shown, self._mark, is_elsewhere = history, 0, history.mark, True
        at = max(self.shown, position, shown or 0)
        if self.history is not None and (at != self.shown or is_elsewhere or self.position is None):
            self.token = bytes(Token({self.history.mark: at}))
        self.position, self.shown = position, at
        self.wake()

    def fail(self, reason: str) -> None:
        """Note that the feed has ended."""
        self.failure = reason
        self.wake()

    def wake(self) -> None:
        """Have the callers that wait look again."""
        if self._waiters:
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    def reached(self, place: Place) -> Reached:
        """Return whether the engine has everything up to a place."""
        if self.position is None or self.history is None:
            return Reached.NOT_YET
        timeline, position = place
        if timeline > self.history.timeline:
            return Reached.NOT_YET
        if timeline < self.history.timeline and position > self.history.ends.get(timeline, -1):
            return Reached.LOST
        return Reached.YES if position <= self.position else Reached.NOT_YET

    def has_passed(self, token: Token) -> bool:
        """Return whether a token names places of the present timeline alone, and the engine has passed them."""
        if self.position is None:
            return False
        # A generator would cost more than all of this.
        for mark, position in token.positions.items():  # noqa: SIM110
            if position > self.position or mark != self._mark:
                return False
        return True

    def token_of(self, place: Place) -> bytes:
        """Return the token of a place that has been reached."""
        assert self.history is not None, "a place is reached after the feed stands"
        return bytes(Token({Mark(self.history.database, place.timeline): place.position}))

    async def until(self, holds: Callable[[], bool], wait_s: float) -> bool:
        """Wait until ``holds`` returns true, for ``wait_s`` at most; return whether it does.

        Raises:
            BackingUnavailableError: The feed has ended, so that nothing moves any more.
        """
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while not holds():
            if self.failure:
                raise BackingUnavailableError(FEED, self.failure)
            self._waiters += 1
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._moved.wait()
            except TimeoutError:
                return holds()
            finally:
                self._waiters -= 1
        return True
