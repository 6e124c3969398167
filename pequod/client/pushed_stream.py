"""An Execute stream whose messages are handed over as they come, as the native transport has them: without tasks.

send(batch) -> wire, if the connection takes it; otherwise it is queued
wire -> the oldest batch
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from pequod.client.stream import BatchStream, Renew, TakeBack
from pequod.errors import ClosedError

if TYPE_CHECKING:
    from pequod.wire.streams import PushedCall

#: Begins a call, with what gets its messages and what is called once it takes more.
OpenCall: TypeAlias = "Callable[[Callable[[bytes], None], Callable[[], None]], PushedCall]"


class PushedStream(BatchStream):
    """A stream over a call of the native transport.

    A Get by itself takes the client 42 µs of CPU where one with tasks, over the same transport, takes 55 (on uvloop's
    loop 34 and 38). `pequod bench wire` has the whole client, by each transport.

    Invariants:
        1. Batches are in ``_outgoing`` only while the call has not begun, or much of what it sent waits.
    """

    def __init__(self, open_call: OpenCall, target: str, take_back: TakeBack, renew: Renew) -> None:
        super().__init__(target, take_back, renew)
        self._call = call = open_call(self._hear, self._go_on)
        if call.done():
            # The channel has just failed to connect; the batch that the stream was opened for is not there yet.
            asyncio.get_running_loop().call_soon(self._end, call)
        else:
            call.add_done_callback(self._end)

    def doubt(self) -> None:
        """See whether the server is alive, since a reply is late; otherwise the connection is given up."""
        self._call.doubt()

    def _go_on(self) -> None:
        call = self._call
        while call.is_ready and (request := self._next_request()) is not None:
            call.send(request)
        if len(self._waiting) == 1:
            # No other batch is under way, which others could go with.
            call.flush()

    def _hear(self, message: bytes) -> None:
        is_taken = False
        try:
            self._take(message)
            is_taken = True
        finally:
            if not is_taken:
                self._break(self._lost_track())

    def _end(self, call: PushedCall) -> None:
        self._break(self._why(call.error()))

    def _leave(self) -> None:
        self._call.cancel()

    async def close(self) -> None:
        """End the call; batches under way fail."""
        self._break(ClosedError())
