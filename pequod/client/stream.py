"""One Execute stream: batches go out in order, and their replies come back in the same order.

send(columns) -> future        writer task: queue -> wire
reader task: wire -> the oldest future
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.client.columns import Columns
from pequod.client.decode import call_error
from pequod.errors import (
    ClosedError,
    DeadlineExceededError,
    PequodError,
    UnavailableError,
)

T = TypeVar("T")
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

#: How gRPC begins to say that it reached nobody; then nothing was applied, and nothing needs to be said of that.
_NOT_CONNECTED: Final = "failed to connect"
#: What gRPC says when a write failed, whatever the reason.
_WRITE_FAILED: Final = "Internal error from Core"


def _ignore(_: ExecuteReply | PequodError) -> None:
    """Take a reply that comes when its batch was given up."""


@dataclass(slots=True)
class _Waiting:
    """A batch under way."""

    batch: int
    #: Whom to tell; nobody once that was done.
    deliver: Deliver
    timer: asyncio.TimerHandle | None = None

    def end(self, outcome: ExecuteReply | PequodError) -> None:
        """Deliver the outcome, if none was delivered before."""
        if self.timer is not None:
            self.timer.cancel()
        deliver, self.deliver = self.deliver, _ignore
        deliver(outcome)


class BatchStream:
    """A live Execute call; when it breaks, everything under way fails and a new one must be made.

    Invariants:
        1. Batches under way are in ``_waiting`` in the order of their sending; one that met its deadline stays
           there until its reply comes, since replies come in order.
        2. Once ``broken`` is set nothing is waiting, and no task is left.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any], target: str, timeout_s: float) -> None:
        self._call = call
        self._target = target
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._outgoing: deque[ExecuteRequest] = deque()
        self._wake = asyncio.Event()
        self._sent = 0
        #: Why the stream is of no use any more.
        self.broken: PequodError | None = None
        #: How the call ended, if it has.
        self._status: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._note_end)
        self._writer = asyncio.create_task(self._write_all())
        self._reader = asyncio.create_task(self._read_all())

    def send(self, columns: Columns, deliver: Deliver) -> None:
        """Send a batch; ``deliver`` is called once, with the reply or the error."""
        assert self.broken is None, "a broken stream is replaced"
        self._sent += 1
        waiting = _Waiting(self._sent, deliver)
        deadline = DeadlineExceededError(self._target, self._timeout_s)
        waiting.timer = asyncio.get_running_loop().call_later(self._timeout_s, waiting.end, deadline)
        self._waiting.append(waiting)
        self._outgoing.append(columns.message(self._sent))
        self._wake.set()

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
                waiting = self._waiting.popleft()
                assert reply.batch == waiting.batch, "replies come in the order of the batches"
                waiting.end(reply)
            await self._call.code()
            self._break(self._why())
        except grpc.aio.AioRpcError:
            self._break(self._why())
        except asyncio.CancelledError:
            self._break(ClosedError())
            raise
        finally:
            # A defect of ours: whoever waits is told, and the next call makes a new stream.
            self._break(UnavailableError(self._target, "the client lost track of its stream"))

    def _note_end(self, call: Any) -> None:
        """Keep the server's status: a write that meets the end of the call puts one in its place that says nothing.

        gRPC calls this with each status that it sets, at once, so that the coroutines that tell it do not wait.
        """
        code, details, trailing = _now(call.code()), _now(call.details()), _now(call.trailing_metadata())
        if self._status is None or self._status.details() == _WRITE_FAILED:
            self._status = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)

    def _why(self) -> PequodError:
        """Return why the stream ended; what is not said to be our fault means that the server went away."""
        assert self._status is not None, "the call has ended"
        code = self._status.code()
        if code in _REFUSALS:
            return call_error(self._status, self._target, self._timeout_s)
        reason = self._status.details() or f"the server ended the stream ({code.name})"
        if not reason.startswith(_NOT_CONNECTED):
            reason += " (whether writes under way were applied is not known)"
        return UnavailableError(self._target, reason)

    def _break(self, error: PequodError) -> None:
        if self.broken is not None:
            return
        self.broken = error
        self._writer.cancel()
        self._call.cancel()
        while self._waiting:
            self._waiting.popleft().end(error)

    async def close(self) -> None:
        """End the call; batches under way fail."""
        # A reader that is cancelled before its first step would not break the stream.
        self._break(ClosedError())
        self._reader.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the status is set")
