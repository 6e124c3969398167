"""One Execute stream: batches go out in order, and their replies come back in the same order.

send(columns) -> future        writer task: queue -> wire
reader task: wire -> the oldest future
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.client.columns import Columns
from pequod.client.decode import call_error
from pequod.errors import DeadlineExceededError, PequodError, UnavailableError

#: Takes a reply, or the error that came instead.
Deliver = Callable[[ExecuteReply | PequodError], None]


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
            # The server ended the stream: its status says why, if it is no plain shutdown.
            code, details = await self._call.code(), await self._call.details()
            reason = details or f"the server ended the stream ({code.name})"
            is_refusal = code is grpc.StatusCode.INVALID_ARGUMENT
            self._break(PequodError(reason) if is_refusal else UnavailableError(self._target, reason))
        except grpc.aio.AioRpcError as error:
            self._break(call_error(error, self._target, self._timeout_s))
        except asyncio.CancelledError:
            self._break(UnavailableError(self._target, "the client was closed"))
            raise

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
