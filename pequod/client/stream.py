"""One Execute stream: batches go out in order, and their replies come back in the same order.

send(batch) -> writer task: queue -> wire
reader task: wire -> the oldest batch; a reply in pieces is put together
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from pequod_proto.pequod_pb2 import ExecuteReply

from pequod.client.columns import Columns
from pequod.client.decode import refusal, unavailable
from pequod.errors import ClosedError, PequodError, UnavailableError

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

#: What gRPC says when a write failed, whatever the reason.
_WRITE_FAILED: Final = "Internal error from Core"


def _ignore(_: ExecuteReply | PequodError) -> None:
    """Take a reply that comes when its batch was given up."""


@dataclass(slots=True, eq=False)
class Sending:
    """A batch on its way, over as many streams as it takes."""

    columns: Columns
    #: Whom to tell; nobody once that was done.
    deliver: Deliver
    #: Ends it when it is late.
    timer: asyncio.TimerHandle | None = None
    #: Its number in the stream that it is sent over.
    number: int = 0
    #: How often it came back without a reply, and why while it waits for the next try.
    tries: int = 0
    error: PequodError | None = None
    #: The pieces of its reply that have come, put together; None before the first.
    begun: ExecuteReply | None = None

    def add(self, piece: ExecuteReply) -> ExecuteReply:
        """Put a piece behind those that have come; return them together."""
        if self.begun is None:
            self.begun = piece
        else:
            statuses = self.begun.statuses + piece.statuses
            # All columns are repeated fields, which this extends.
            self.begun.MergeFrom(piece)
            self.begun.statuses = statuses
        return self.begun

    def end(self, outcome: ExecuteReply | PequodError) -> None:
        """Deliver the outcome, if none was delivered before."""
        if self.timer is not None:
            self.timer.cancel()
        deliver, self.deliver = self.deliver, _ignore
        deliver(outcome)

    @property
    def is_over(self) -> bool:
        """An outcome was delivered."""
        return self.deliver is _ignore


class BatchStream:
    """A live Execute call; when it breaks, what is under way is handed back and a new one must be made.

    Args:
        take_back: Gets the batches without a whole reply, in their order, and why the stream broke.
        renew: Gets a batch of whose reply a piece has come, but not the last one.

    Invariants:
        1. Batches under way are in ``_waiting`` in the order of their sending; one that met its deadline stays
           there until its reply comes, since replies come in order.
        2. Once ``broken`` is set nothing is waiting, and no task is left.
    """

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[Any, Any],
        target: str,
        take_back: Callable[[list[Sending], PequodError], None],
        renew: Callable[[Sending], None],
    ) -> None:
        self._call = call
        self._target = target
        self._take_back = take_back
        self._renew = renew
        self._waiting: deque[Sending] = deque()
        self._outgoing: deque[Sending] = deque()
        self._wake = asyncio.Event()
        self._sent = 0
        #: Why the stream is of no use any more.
        self.broken: PequodError | None = None
        #: How the call ended, if it has.
        self._status: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._note_end)
        self._writer = asyncio.create_task(self._write_all())
        self._reader = asyncio.create_task(self._read_all())

    def send(self, sending: Sending) -> None:
        """Send a batch; it is ended with its reply, or handed back."""
        assert self.broken is None, "a broken stream is replaced"
        self._sent += 1
        sending.number = self._sent
        self._waiting.append(sending)
        self._outgoing.append(sending)
        self._wake.set()

    async def _write_all(self) -> None:
        write, outgoing, wake = self._call.write, self._outgoing, self._wake
        try:
            while True:
                while outgoing:
                    sending = outgoing.popleft()
                    if sending.is_over:
                        # Late before it was sent: nobody waits for it, so it is to change nothing.
                        self._waiting.remove(sending)
                    else:
                        await write(sending.columns.message(sending.number))
                wake.clear()
                await wake.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader learns why.
            return

    async def _read_all(self) -> None:
        try:
            while isinstance(reply := await self._call.read(), ExecuteReply):
                sending = self._waiting[0]
                assert reply.batch == sending.number, "replies come in the order of the batches"
                if reply.more:
                    # Nobody waits for a batch that is over, but its pieces come before the other replies.
                    if not sending.is_over:
                        sending.add(reply)
                        self._renew(sending)
                    continue
                self._waiting.popleft()
                sending.end(reply if sending.begun is None else sending.add(reply))
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
            return refusal(self._status, self._target)
        reason = self._status.details() or f"the server ended the stream ({code.name})"
        return unavailable(self._target, reason, self._status.trailing_metadata())

    def _break(self, error: PequodError) -> None:
        if self.broken is not None:
            return
        self.broken = error
        self._writer.cancel()
        self._call.cancel()
        # gRPC keeps the connection of a call open for as long as anybody knows the call.
        del self._call
        unanswered = [sending for sending in self._waiting if not sending.is_over]
        self._waiting.clear()
        self._take_back(unanswered, error)

    async def close(self) -> None:
        """End the call; batches under way fail."""
        # A reader that is cancelled before its first step would not break the stream.
        self._break(ClosedError())
        self._reader.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)
        # What ended them knows their frames, which know the call.
        del self._writer, self._reader


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the status is set")
