"""A store for callers that wait: the calls of `AsyncEmbedded`, which end before they would let other tasks run."""

from __future__ import annotations

import threading

from pequod.calls import AnyToken
from pequod.embedded.aio import AsyncEmbedded, AsyncEmbeddedSession
from pequod.embedded.batch import EmbeddedBatch
from pequod.embedded.shared import SharedEngine
from pequod.engine import Statistics
from pequod.freshness import WAIT_S, Freshness
from pequod.interface import Calls, Session
from pequod.interface.waiting import Immediate


class _EmbeddedCalls(Calls):
    """The calls that a store and a session carry out in the same way."""

    _async: AsyncEmbedded

    def batch(self, freshness: Freshness | None = None) -> EmbeddedBatch:
        """Return an empty batch of commands, to be sent together.

        Args:
            freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
        """
        return EmbeddedBatch(self._async._run_batch, self._async._meet, freshness)

    def session(self, token: AnyToken | None = None, *, wait_s: float = WAIT_S) -> EmbeddedSession:
        """Return a view of this client whose reads never go back: they show what calls of the session have shown.

        A read shows what the session has written and read by the calls that ended before it, whichever server beside
        the same database it asks; otherwise it fails with StaleError after ``wait_s``.

        Args:
            token: What an earlier session has seen; this one goes on from there.
        """
        return EmbeddedSession(self._async.session(token, wait_s=wait_s))

    def statistics(self) -> Statistics:
        """Return counts of what the server holds and has done."""
        return self._wait(self._calls.statistics())


class Embedded(_EmbeddedCalls):
    """A store in the process; safe to use from many threads.

    Each call is done when it returns. The changes for a watch are kept until they are taken, without a limit.

    Example:
        with pequod.open() as client:
            client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, *, key_bytes_max: int, value_bytes_max: int) -> None:
        self._shared = SharedEngine(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)
        self._async = AsyncEmbedded(self._shared, _ThreadNews)
        super().__init__(self._async, Immediate())

    def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._shared.close()


class EmbeddedSession(_EmbeddedCalls, Session):
    """A view of a store in the process, with a token."""

    def __init__(self, calls: AsyncEmbeddedSession) -> None:
        super().__init__(calls, Immediate())
        self._async = calls

    def close(self) -> None:
        """End the session; the client, which others may use, stays open."""


class _ThreadNews:
    """Wakes a watch whose thread waits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.set = self._event.set

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for news since the last wait; no other coroutine runs meanwhile, since there is none."""
        is_set = self._event.wait(timeout_s)
        self._event.clear()
        return is_set
