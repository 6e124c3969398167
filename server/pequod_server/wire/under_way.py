"""The calls under way: how many there may be, and waiting for them at the end.

    connection -> CallsUnderWay -> the servicer
                  over a limit: RESOURCE_EXHAUSTED, with the name of the setting
                  stopping: UNAVAILABLE

Health and reflection are not counted: a busy server must not look dead. Nor does a client that begins calls and sends
no requests shut others out: where a limit is reached, the oldest call of such a connection ends.

gRPC itself queues the calls that have begun until it is asked for the next one, and cancels those beyond a number of
its own without a word. So that number is beyond what clients begin at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final

import grpc
from grpc import aio

from pequod.engine import LimitExceededError
from pequod_server.config import ServerConfig
from pequod_server.memory.begun import CALL_BYTES, connection_calls_max, unread_bytes_max
from pequod_server.memory.keeper import limit_bytes
from pequod_server.memory.pressure import Pressure
from pequod_server.wire.errors import status_of, stopping_status
from pequod_server.wire.handlers import COUNTED_PATHS, SERVICE_PATH, Continuation, Handler, Wrapped, refusing
from pequod_server.wire.undecodable import refusing_undecodable

_STREAMS: Final = frozenset({SERVICE_PATH + "Execute"})
#: The memory that calls whose requests are not read yet may take together, as a share of the limit of memory, and the
#: bounds of their number.
_BEGUN_SHARE: Final = 1 / 8
_BEGUN_MIN, _BEGUN_MAX = 10_000, 100_000
#: How often calls that are on their way to other workers are looked for.
_LOOK_S: Final = 0.01
#: gRPC cancels calls that the server does not ask for within these seconds. A client that waits less has a deadline.
_BEGUN_S: Final = 3600


def queue_options(config: ServerConfig) -> list[tuple[str, int]]:
    """Return gRPC's options for calls that have begun: how many there may be, and what it takes of each."""
    fitting = int(min(limit_bytes(config.memory_limit) * _BEGUN_SHARE // CALL_BYTES, _BEGUN_MAX))
    count = max(fitting, config.calls_max, _BEGUN_MIN)
    return [
        # From the first to the second number on, gRPC cancels at random.
        ("grpc.server.max_pending_requests", count),
        ("grpc.server.max_pending_requests_hard_limit", count),
        ("grpc.server_max_unrequested_time_in_server", _BEGUN_S),
        ("grpc.http2.lookahead_bytes", unread_bytes_max(config)),
        ("grpc.max_concurrent_streams", connection_calls_max(config)),
        # With it, gRPC counts ended calls that the server has not forgotten yet, and so refuses, as UNAVAILABLE, calls
        # of clients that keep to the number.
        ("grpc.http.overload_protection", 0),
    ]


class CallsUnderWay(aio.ServerInterceptor):
    """Admits calls of `pequod.v1`, those between servers included, or refuses them.

    Args:
        make_way: Ends one of some calls that keep their requests back, with an error; returns whether there was one.
        pressure: Knows whether a call may begin beside those under way.

    Invariants:
        1. ``_under_way`` holds the task of each admitted call until its status has been sent, ``_streams`` those of
           Execute among them.
    """

    def __init__(
        self,
        config: ServerConfig,
        make_way: Callable[[LimitExceededError, AbstractSet[asyncio.Task[Any]]], bool],
        pressure: Pressure,
    ) -> None:
        self._config = config
        self._make_way = make_way
        self._refusal = pressure.refusal
        #: Beside fewer calls, one more may begin at once, whatever else is asked otherwise.
        self._at_ease_max = min(pressure.calls_at_ease, config.calls_max)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._streams: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        #: How many calls are on their way to other workers, outside of the sets.
        self.relayed: Callable[[], int] = lambda: 0
        self._checked = Wrapped(lambda method, handler: refusing_undecodable(method, handler, config))

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Let a call pass, or refuse it."""
        method = details.method
        if not method.startswith(COUNTED_PATHS):
            return await continuation(details)
        if self._is_stopping:
            return refusing(stopping_status())
        if (error := self._over_limit(method)) is not None:
            return refusing(status_of(error))
        # gRPC runs each call from here to its end in one task.
        task = asyncio.current_task()
        assert task is not None
        self._hold(task, self._under_way)
        if method in _STREAMS:
            self._hold(task, self._streams)
        handler = await continuation(details)
        return None if handler is None else self._checked.around(method, handler)

    def _over_limit(self, method: str) -> LimitExceededError | None:
        # Those that have made way and have not ended yet are in the sets, and in no number that a client sees.
        if len(self._under_way) + self.relayed() >= self._config.calls_max:
            error = LimitExceededError("calls_max", self._config.calls_max + 1, self._config.calls_max)
            if not self._make_way(error, self._under_way):
                return error
        if method in _STREAMS and len(self._streams) >= self._config.streams_max:
            error = LimitExceededError("streams_max", self._config.streams_max + 1, self._config.streams_max)
            if not self._make_way(error, self._streams):
                return error
        return self._refusal(len(self._under_way))

    @staticmethod
    def _hold(task: asyncio.Task[Any], held: set[asyncio.Task[Any]]) -> None:
        held.add(task)
        task.add_done_callback(held.discard)

    @property
    def admits_at_once(self) -> bool:
        """Whether a call may begin that ends in the same turn of the event loop, without one that makes way for it."""
        count = len(self._under_way) + self.relayed()
        if count < self._at_ease_max:
            return True
        return not self._is_stopping and count < self._config.calls_max and self._refusal(count) is None

    def refuse(self) -> None:
        """Admit no more calls."""
        self._is_stopping = True
        self._at_ease_max = 0

    async def drain(self, wait_s: float) -> None:
        """Wait for the calls under way, ``wait_s`` at most."""
        end_s = time.monotonic() + wait_s
        while self.relayed() and time.monotonic() < end_s:  # noqa: ASYNC110 - only at the end
            # They are answered, or become calls as any, within a second.
            await asyncio.sleep(_LOOK_S)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=max(end_s - time.monotonic(), 0))
