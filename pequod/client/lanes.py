"""The lanes of a client: one for all that has an order, others for single reads that may wait at the server.

    batches, writes, reads without a level    ----> one lane: they run in the order of their sending
    reads after a token, latest, no older     ----> the lane among LANES_MAX with the fewest under way

A server runs the batches of a stream one after another. In a lane of its own, a read that waits for its level delays
no other call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pequod.client.columns import Columns, Reply
from pequod.client.lane import Lane
from pequod.client.stream import Deliver
from pequod.errors import PequodError

#: Lanes for reads that may wait. Each is a stream, of which servers limit the number (`streams_max`).
LANES_MAX: Final = 8


@dataclass(slots=True, eq=False)
class _WaitLane:
    """A lane for reads that may wait."""

    lane: Lane
    #: Batches without an outcome.
    under_way: int = 0


class Lanes:
    """The lanes to one server.

    Args:
        make: Makes a lane; its stream is opened by its first batch.
    """

    def __init__(self, make: Callable[[], Lane]) -> None:
        self._make = make
        #: For all that has an order.
        self.ordered = make()
        self._waiting: list[_WaitLane] = []

    def send_waiting(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads that may wait for their level, in no order with other batches."""
        chosen = min(self._waiting, key=lambda waiting: waiting.under_way, default=None)
        if chosen is None or (chosen.under_way and len(self._waiting) < LANES_MAX):
            chosen = _WaitLane(self._make())
            self._waiting.append(chosen)
        chosen.under_way += 1
        chosen.lane.send(columns, partial(self._take, chosen, deliver), deadline)

    def _take(self, waiting: _WaitLane, deliver: Deliver, outcome: Reply | PequodError) -> None:
        waiting.under_way -= 1
        deliver(outcome)

    async def close(self) -> None:
        """End the streams; batches under way fail."""
        for lane in (self.ordered, *(waiting.lane for waiting in self._waiting)):
            await lane.close()
