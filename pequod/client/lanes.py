"""The lanes of a client: one for all that has an order, others for single reads that have a level.

    batches, writes, reads without a level    ----> one lane: they run in the order of their sending
    reads after tokens that are reached       ----> one more
    reads that may wait for their level       ----> one of LANES_MAX that is free; otherwise they are held, and go
                                                    together as soon as one is free

A server runs the batches of a stream one after another. In a lane of its own, a read that waits for its level delays
no other call. A read that is held waits for one batch at most, and then with all the others at once: a hundred reads
that wait for a second in vain take two seconds together, not a hundred.

A lane sends its batches in their order, over one stream after another:

    send -> stream -> reply
              | breaks
              v
            held for a pause -> the next stream, in the same order; new batches wait behind them

A batch that may not be sent again (see retry.py), or was sent too often, fails with the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pequod.client.columns import Columns, Reply
from pequod.client.retry import pause_s
from pequod.client.stream import BatchStream, Deliver, Renew, Sending, TakeBack
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError

#: Lanes for reads that may wait. Each is a stream, of which servers limit the number (`streams_max`).
LANES_MAX: Final = 2
#: The greatest number of commands in a batch that is put together from those that were held.
_COMMANDS_MAX: Final = 512


class Lane:
    """Sends batches in order, and sends again those that a broken stream leaves.

    Args:
        connect: Opens a stream; it raises once the client is closed.

    Invariants:
        1. Batches are held only during a pause, and during a pause all are held: no stream is in use.
    """

    def __init__(
        self,
        connect: Callable[[TakeBack, Renew], BatchStream],
        target: str,
        timeout_s: float,
        retries: int,
    ) -> None:
        self._connect = connect
        self._target = target
        self._timeout_s = timeout_s
        self._retries = retries
        self._stream: BatchStream | None = None
        self._held: deque[Sending] = deque()
        self._pause: asyncio.TimerHandle | None = None

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch; ``deliver`` is called once, with the reply or the error.

        Args:
            deadline: By the loop's clock; without it, ``timeout_s`` from now.
        """
        loop = asyncio.get_running_loop()
        sending = Sending(columns, deliver)
        due = loop.time() + self._timeout_s if deadline is None else deadline
        sending.timer = loop.call_at(due, self._end_late, sending)
        if self._pause is None:
            self._go(sending)
        else:
            self._held.append(sending)

    def _go(self, sending: Sending) -> None:
        if self._stream is None or self._stream.broken is not None:
            try:
                self._stream = self._connect(self._take_back, self._renew)
            except PequodError as error:
                sending.end(error)
                return
        self._stream.send(sending)

    def _take_back(self, unanswered: list[Sending], error: PequodError) -> None:
        """Hold the batches that may be sent again; the others fail."""
        failed = []
        for sending in unanswered:
            own = sending.outcome_of(error)
            if self._may_try_again(sending, own):
                sending.tries += 1
                sending.error = own
                sending.begun, sending.is_sent = None, False
                self._held.append(sending)
            else:
                failed.append((sending, own))
        if self._held and self._pause is None:
            tries = max(sending.tries for sending in self._held)
            self._pause = asyncio.get_running_loop().call_later(pause_s(tries), self._resume)
        # Last, since a caller may send a batch when it gets its error.
        for sending, own in failed:
            sending.end(own)

    def _may_try_again(self, sending: Sending, error: PequodError) -> bool:
        return (
            isinstance(error, UnavailableError)
            and sending.tries < self._retries
            and (error.is_unapplied or sending.columns.is_harmless_twice())
        )

    def _resume(self) -> None:
        self._pause = None
        held, self._held = self._held, deque()
        for sending in held:
            if not sending.is_over:
                sending.error = None
                self._go(sending)

    def _renew(self, sending: Sending) -> None:
        """Give the next piece of a reply as much time as the first one."""
        assert sending.timer is not None, "it was sent"
        sending.timer.cancel()
        sending.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._end_late, sending)

    def _end_late(self, sending: Sending) -> None:
        if sending.is_sent and self._stream is not None:
            self._stream.doubt()
        sending.end(sending.error or DeadlineExceededError(self._target, self._timeout_s))

    def abandon(self, error: PequodError) -> None:
        """End the stream at once, as if it had broken with this error; the lane takes no more batches."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abandon(error)

    async def close(self) -> None:
        """End the stream; batches under way fail."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        held, self._held = self._held, deque()
        for sending in held:
            sending.end(ClosedError())
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()


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
                    columns.take_in(part.columns)
            lane = self._free.pop()
            lane.send(columns, partial(self._settle, lane, parts), min(part.deadline for part in parts))

    def _taken(self) -> list[_Share]:
        """Take as many of the held reads as fit into a batch."""
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
