"""Ends calls that wait for their requests, when the process is above its limit of memory.

    resident   |<------- limit ------->| late calls end | 1/32: streams between two batches end, too

gRPC does not say that a request has begun to come, nor how much of it has come; it frees these bytes only when the call
ends. A late call may hold all but the last byte of the longest message, or nothing, if its client has a slow
connection. So while there is memory for them, all late calls may wait.

The calls that wait behind late ones of their connection hold little, but there may be thousands of them, so most end,
too.

Calls that have begun take memory, too. One connection has no more than fit (see `begun.py`), but there may be many. So
while the process is above its limit, calls beyond this number are refused at once.

Rejected: a fixed number of late calls. It would be four at a limit of 256 MiB, and would end the fifth slow client in
vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from pequod.engine import UNLIMITED, LimitExceededError
from pequod_server.memory.keeper import resident_bytes
from pequod_server.memory.periodic import Periodic
from pequod_server.memory.places import Places

#: The least time between two looks, 10 µs each. Over the loopback, a connection sends 5 MB meanwhile.
_PAUSE_MIN_S: Final = 0.01
#: The greatest: to look more often takes an idle server 1 % of a core.
_PAUSE_MAX_S: Final = 0.1
#: No process grows faster, as new pages are filled with zeros first.
_GROWTH_MAX_BYTES_S: Final = 4 << 30
#: Streams are ended when the process is above its limit by this share of it.
_STREAMS_SHARE: Final = 1 / 32
#: A stream that has waited for a batch for less than this counts as in use.
_IDLE_S: Final = 0.05


class Pressure:
    """The calls that wait for requests; ends some of them if memory is short.

    Args:
        late_min: This many late calls may always wait.
        places: Knows the late calls.
        resident: Returns the size of the process in bytes; 0 if that is unknown, and then no call is ended.
        calls_at_ease: This many calls may be under way, whatever the size of the process.
    """

    def __init__(
        self,
        limit_bytes: int,
        late_min: int,
        places: Places,
        resident: Callable[[], int] = resident_bytes,
        *,
        calls_at_ease: int = 0,
    ) -> None:
        self._limit_bytes = limit_bytes
        self.calls_at_ease = calls_at_ease
        self._late_min = late_min
        self._places = places
        self._resident = resident
        #: Streams that wait for a batch, and since when, the oldest first.
        self.streams: dict[asyncio.Task[object], float] = {}
        #: Ends one of them with an error; of a batch that comes meanwhile nothing may run.
        self.end_stream: Callable[[asyncio.Task[object], Exception], object] = asyncio.Task.cancel
        #: The size of the process as `refusal` saw it, and when.
        self._seen_bytes = 0
        self._seen_s = -inf
        #: The repeated look.
        self.looking = Periodic(self._look_if_anybody_waits, self.pause_s, "pequod pressure")

    def start(self) -> None:
        """Start the looks, if there is a limit."""
        if self._limit_bytes < UNLIMITED:
            self.looking.start()

    async def stop(self) -> None:
        """Stop them."""
        await self.looking.stop()

    def pause_s(self) -> float:
        """Return how long the process takes to reach its limit, at the least; within bounds."""
        room_bytes = self._limit_bytes - self._resident()
        return min(max(room_bytes / _GROWTH_MAX_BYTES_S, _PAUSE_MIN_S), _PAUSE_MAX_S)

    def refusal(self, call_count: int) -> LimitExceededError | None:
        """Return why no call may begin now; None if one may.

        Args:
            call_count: The calls under way.
        """
        if call_count < self.calls_at_ease or self._limit_bytes >= UNLIMITED:
            return None
        if (now_s := monotonic()) - self._seen_s > _PAUSE_MIN_S:
            self._seen_bytes, self._seen_s = self._resident(), now_s
        if self._seen_bytes <= self._limit_bytes:
            return None
        return LimitExceededError("memory_limit", self._seen_bytes, self._limit_bytes)

    async def _look_if_anybody_waits(self) -> None:
        if self._places.late or self.streams:
            self.look()

    def look(self) -> None:
        """End calls if the process is too large."""
        resident = self._resident()
        beyond_bytes = resident - self._limit_bytes
        if beyond_bytes <= 0:
            return
        # The error becomes that of the call; see `refusal_of`.
        refusal = partial(LimitExceededError, "memory_limit", resident, self._limit_bytes)
        for task in self._places.surplus(self._late_min):
            task.cancel(refusal())
        if beyond_bytes > self._limit_bytes * _STREAMS_SHARE:
            since_s = monotonic() - _IDLE_S
            for task in [task for task, waits_s in self.streams.items() if waits_s < since_s]:
                self.end_stream(task, refusal())
