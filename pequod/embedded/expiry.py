"""A thread that has a store remove what is due though no call comes: it lives as long as there are deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

#: A deadline that is set meanwhile may be nearer than the one that the thread waits for.
_TICK_S: Final = 0.1


def wall_ms() -> int:
    """Return the present instant, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Expiry:
    """Calls a function at the deadlines of a store.

    Args:
        remove_due: Removes what is due. Returns after how many seconds it has to be called again, None: no key has a
            deadline.
    """

    def __init__(self, remove_due: Callable[[], float | None]) -> None:
        self._remove_due = remove_due
        self._is_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Have what is due removed from now on.

        Requires:
            The caller has the lock that ``remove_due`` takes.
        """
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="pequod expiry", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Remove nothing any more."""
        self._is_ended.set()

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None and not self._is_ended.wait(min(wait_s, _TICK_S)):
            wait_s = self._remove_due()
