"""Moments at which the engine was known to be somewhere, to tell which snapshots are fresh enough.

moment_s    10      12      15      19        asked: at 41 or later
position    40      41      41      43        -> 12: snapshots that were taken since then will do
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from pequod_server.backing import Place

#: Moments that are kept.
_MOMENTS_MAX: Final = 256


class KnownMoment(NamedTuple):
    """The state of the engine at a moment."""

    moment_s: float
    place: Place
    #: Everything that was committed before this was there.
    fresh_s: float


class Moments:
    """The latest moments at which a read asked."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        #: The latest first.
        self._kept: deque[KnownMoment] = deque(maxlen=_MOMENTS_MAX)

    def since_s(self, now: KnownMoment, is_enough: Callable[[KnownMoment], bool]) -> float:
        """Return the earliest known moment from which on the state was enough; ``now`` if no earlier state was."""
        if not self._kept or self._kept[0][1:] != now[1:]:
            self._kept.appendleft(now)
        found = now
        for moment in self._kept:
            if moment.place.timeline != now.place.timeline or not is_enough(moment):
                break
            found = moment
        return found.moment_s
