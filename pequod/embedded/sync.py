"""A store for callers that wait: the calls of `AsyncEmbedded`, which end before they would let other tasks run."""

from __future__ import annotations

import threading

from pequod.embedded.aio import AsyncEmbedded
from pequod.embedded.batch import EmbeddedBatch
from pequod.embedded.shared import SharedEngine
from pequod.engine import Statistics
from pequod.interface import Calls
from pequod.interface.waiting import Immediate


class Embedded(Calls):
    """A store in the process; safe to use from many threads.

    Each call is done when it returns. The changes for a watch are kept until they are taken, without a limit.

    Example:
        with pequod.open() as client:
            client.put("p|bob|0000000100", "Hi")
    """

    def __init__(self, *, key_bytes_max: int, value_bytes_max: int) -> None:
        self._shared = SharedEngine(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)
        super().__init__(AsyncEmbedded(self._shared, _ThreadNews), Immediate())

    def close(self) -> None:
        """Close the client; calls under way fail, and so do those that follow. Closing twice is no error."""
        self._shared.close()

    def batch(self) -> EmbeddedBatch:
        """Return an empty batch of commands, to be sent together."""
        return EmbeddedBatch(self._shared.run)

    def statistics(self) -> Statistics:
        """Return counts of what the server holds and has done."""
        return self._wait(self._calls.statistics())


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
