"""How long a feed may work before others have their turn of the event loop."""

from __future__ import annotations

from time import perf_counter
from typing import Final

#: A call to the server takes a few turns of the loop, and each may have to wait for this.
TURN_S: Final = 0.005


class Turn:
    """Measures one turn of the event loop."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self._end = perf_counter() + TURN_S

    def is_over(self) -> bool:
        """Tell whether it is time to give the loop to others."""
        return perf_counter() >= self._end
