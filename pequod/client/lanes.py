"""The lanes of a client: one for all that has an order, others for single reads that have a level.

    batches, writes, reads without a level    ----> one lane: they run in the order of their sending
    reads after tokens that are reached       ----> one more
    reads that may wait for their level       ----> one of LANES_MAX that is free; otherwise they are held, and go
                                                    together as soon as one is free

A server runs the batches of a stream one after another. In a lane of its own, a read that waits for its level delays
no other call. What is held waits for one batch at most, and then with all the others at once: a hundred reads that wait
for a second in vain take two seconds together, not a hundred.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pequod.client.columns import Columns, Reply
from pequod.client.lane import Lane
from pequod.client.stream import Deliver
from pequod.errors import PequodError

#: Lanes for reads that may wait. Each is a stream, of which servers limit the number (`streams_max`).
LANES_MAX: Final = 2
#: The greatest number of commands in a batch that is put together from those that were held.
_COMMANDS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class _Share:
    """Reads that are sent with others."""

    columns: Columns
    deliver: Deliver
    deadline: float


class Lanes:
    """The lanes to one server.

    Args:
        make: Makes a lane; its stream is opened by its first batch.

    Invariants:
        1. Reads are held only while all lanes for them are in use.
    """

    def __init__(self, make: Callable[[], Lane]) -> None:
        self._make = make
        #: For all that has an order.
        self.ordered = make()
        #: For reads after tokens that the server has reached, so that none is likely to wait.
        self.reached = make()
        self._free: list[Lane] = []
        #: For reads that may wait, each with one batch under way unless it is free.
        self._lanes: list[Lane] = []
        self._held: deque[_Share] = deque()

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch in the order of sending.

        Args:
            deadline: By the loop's clock; without it, ``timeout_s`` from now.
        """
        self.ordered.send(columns, deliver, deadline)

    def send_reached(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads after tokens that the latest reply has reached, so that none is likely to wait."""
        self.reached.send(columns, deliver, deadline)

    def send_waiting(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads that may wait for their levels, in no order with other batches."""
        self._held.append(_Share(columns, deliver, deadline))
        self._go()

    def _go(self) -> None:
        """Send what is held if a lane is free."""
        while self._held:
            if not self._free and len(self._lanes) < LANES_MAX:
                self._free.append(self._make())
                self._lanes += self._free
            if not self._free:
                return
            parts = self._taken()
            columns = parts[0].columns
            if len(parts) > 1:
                columns = Columns()
                for part in parts:
                    columns.add(part.columns)
            lane = self._free.pop()
            lane.send(columns, partial(self._settle, lane, parts), min(part.deadline for part in parts))

    def _taken(self) -> list[_Share]:
        """Take as much of what is held as fits into a batch."""
        parts = [self._held.popleft()]
        count = len(parts[0].columns)
        while self._held and count + len(self._held[0].columns) <= _COMMANDS_MAX:
            count += len(self._held[0].columns)
            parts.append(self._held.popleft())
        return parts

    def _settle(self, lane: Lane, parts: list[_Share], outcome: Reply | PequodError) -> None:
        """Give each part its share of the results."""
        self._free.append(lane)
        self._go()
        at = 0
        for part in parts:
            share = outcome
            if not isinstance(outcome, PequodError):
                share = outcome._replace(results=outcome.results[at : at + len(part.columns)])
                at += len(part.columns)
            part.deliver(share)

    def abandon(self, error: PequodError) -> None:
        """End the streams at once; batches under way fail with this error, which says whether they may go elsewhere."""
        for lane in (self.ordered, self.reached, *self._lanes):
            lane.abandon(error)

    async def close(self) -> None:
        """End the streams; batches under way fail."""
        for lane in (self.ordered, self.reached, *self._lanes):
            await lane.close()
