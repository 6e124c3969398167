"""What people are told while something is away: at once, again at growing distances, and when it is back.

0 s    postgres://db/app does not answer: connection refused; it is waited for
10 s   postgres://db/app does not answer: connection refused; away for 10 s
30 s   ...                                                           then 70 s, 150 s, 310 s, and each 10 minutes
95 s   postgres://db/app answers again after 95 s
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("pequod.views")

_FIRST_S: Final = 10.0
_MOST_S: Final = 600.0


class Patience:
    """Tells of one thing that is waited for.

    Args:
        name: It, for people.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        #: Since when it is away, None: it is not; when it is told next, and after which distance again.
        self._since_s: float | None = None
        self._next_s = self._distance_s = 0.0

    def is_away(self, error: Exception) -> None:
        """Note that it does not answer."""
        now_s = self._clock()
        if self._since_s is None:
            self._since_s, self._distance_s = now_s, _FIRST_S
            log.warning("%s; it is waited for", error)
        elif now_s < self._next_s:
            return
        else:
            log.warning("%s; away for %.0f s", error, now_s - self._since_s)
            self._distance_s = min(2 * self._distance_s, _MOST_S)
        self._next_s = now_s + self._distance_s

    def answers(self) -> None:
        """Note that it answers."""
        if self._since_s is not None:
            log.info("%s answers again after %.0f s", self._name, self._clock() - self._since_s)
            self._since_s = None
