"""What a session has seen, and so what its reads ask for."""

from __future__ import annotations

from threading import Lock
from typing import Final

from pequod.freshness import After, Freshness, Token


class Seen:
    """The token of a session: it holds the tokens of all replies to its calls.

    Calls of any thread may note and ask. What is noted before a call begins is in the level of that call.

    Args:
        token: What the session has seen before it begins.
        wait_s: How long its reads wait for their level, unless they say it themselves.
    """

    def __init__(self, token: Token, wait_s: float) -> None:
        self._wait_s: Final = wait_s
        self._lock = Lock()
        self._after = After(token, wait_s)

    @property
    def token(self) -> Token:
        """The state that every further read shows at least."""
        return self._after.token

    def note(self, reply: bytes) -> None:
        """Note the token of a reply.

        Nothing that was seen goes: a server waits for those databases alone that a read depends on.
        """
        if not reply:
            return
        shown = Token.parse(reply)
        with self._lock:
            before = self._after.token
            token = before.merged(shown)
            if token != before:
                self._after = After(token, self._wait_s)

    def level(self, freshness: Freshness | None) -> Freshness | None:
        """Return what a read of the session asks for, if its caller says this."""
        if freshness is None:
            return self._after if self._after.token.positions else None
        return self.added(freshness)

    def added(self, freshness: Freshness) -> Freshness:
        """Return a level with what the session has seen: a token gets its token, any other level stays as it is."""
        if isinstance(freshness, After):
            return After(self._after.token.merged(freshness.token), freshness.wait_s)
        return freshness
