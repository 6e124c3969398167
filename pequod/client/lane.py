"""Batches in the order of their sending, over one stream after another.

    send -> stream -> reply
              | breaks
              v
            held for a pause -> the next stream, in the same order; new batches wait behind them

A batch that may not be sent again (see retry.py), or was sent too often, fails with the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from pequod.client.columns import Columns
from pequod.client.retry import pause_s
from pequod.client.stream import BatchStream, Deliver, Sending
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError


class Lane:
    """Sends batches in order, and sends again those that a broken stream leaves.

    Args:
        connect: Opens an Execute call; it raises once the client is closed.
        connected: Waits until calls have a connection.

    Invariants:
        1. Batches are held only during a pause, and during a pause all are held: no stream is in use.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        connected: Callable[[], Awaitable[None]],
        target: str,
        timeout_s: float,
        retries: int,
    ) -> None:
        self._connect = connect
        self._connected = connected
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
                self._stream = BatchStream(self._connect(), self._target, self._connected, self._take_back, self._renew)
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
            and (error.is_unapplied or not sending.columns.has_writes())
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
