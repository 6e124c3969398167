"""One Execute stream: batches go out in order, and their replies come back in the same order.

send(columns) -> future        writer task: queue -> wire
reader task: wire -> the oldest future
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.client.columns import Columns
from pequod.errors import DeadlineExceededError, PequodError, UnavailableError

#: Takes a reply, or the error that came instead.
Deliver = Callable[[ExecuteReply | PequodError], None]

#: Ends of a stream that another try would meet again. A server that dies may end it with any other code.
_REFUSALS: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class BatchStream:
    """A live Execute call; when it breaks, everything under way fails and a new one must be made.

    Invariants:
        1. Batches under way are in ``_waiting`` in the order of their sending.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any], target: str, timeout_s: float) -> None:
        self._call = call
        self._target = target
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, Deliver, asyncio.TimerHandle]] = deque()
        self._outgoing: deque[ExecuteRequest] = deque()
        self._wake = asyncio.Event()
        self._sent = 0
        #: Why the stream is of no use any more.
        self.broken: PequodError | None = None
        self._tasks = [asyncio.create_task(self._write_all()), asyncio.create_task(self._read_all())]

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch; ``deliver`` is called once, with the reply or the error."""
        assert self.broken is None, "a broken stream is replaced"
        self._sent += 1
        timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, deliver)
        self._waiting.append((self._sent, deliver, timer))
        self._outgoing.append(columns.message(self._sent))
        self._wake.set()

    def _expire(self, deliver: Deliver) -> None:
        deliver(DeadlineExceededError(self._target, self._timeout_s))

    async def _write_all(self) -> None:
        write, outgoing, wake = self._call.write, self._outgoing, self._wake
        try:
            while True:
                while outgoing:
                    await write(outgoing.popleft())
                wake.clear()
                await wake.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader learns why.
            return

    async def _read_all(self) -> None:
        try:
            while isinstance(reply := await self._call.read(), ExecuteReply):
                batch, deliver, timer = self._waiting.popleft()
                timer.cancel()
                assert reply.batch == batch, "replies come in the order of the batches"
                deliver(reply)
            self._break(self._why(await self._call.code(), await self._call.details()))
        except grpc.aio.AioRpcError as error:
            self._break(self._why(error.code(), error.details()))
        except asyncio.CancelledError:
            self._break(UnavailableError(self._target, "the client was closed"))
            raise

    def _why(self, code: grpc.StatusCode, details: str | None) -> PequodError:
        """Return why the stream ended; what is not said to be our fault means that the server went away."""
        reason = details or f"the server ended the stream ({code.name})"
        return PequodError(reason) if code in _REFUSALS else UnavailableError(self._target, reason)

    def _break(self, error: PequodError) -> None:
        self.broken = error
        while self._waiting:
            _, deliver, timer = self._waiting.popleft()
            timer.cancel()
            deliver(error)

    async def close(self) -> None:
        """End the call; batches under way fail."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._call.cancel()
