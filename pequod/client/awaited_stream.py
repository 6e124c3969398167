"""An Execute stream whose messages are awaited, as gRPC's asyncio client has them.

send(batch) -> writer task: queue -> wire
reader task: wire -> the oldest batch
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from grpc.aio import AioRpcError, Metadata, StreamStreamCall

from pequod.client.stream import BatchStream, Renew, TakeBack
from pequod.errors import ClosedError, PequodError

T = TypeVar("T")
#: gRPC's message when a write failed, for any reason.
_WRITE_FAILED: Final = "Internal error from Core"


class AwaitedStream(BatchStream):
    """A stream over a call of `grpc.aio`, with a task that writes and one that reads.

    Args:
        connected: Waits until the call has a connection.

    Invariants:
        1. Once ``broken`` is set, no task is left.
    """

    def __init__(
        self,
        call: StreamStreamCall[Any, Any],
        connected: Callable[[], Awaitable[None]],
        target: str,
        take_back: TakeBack,
        renew: Renew,
    ) -> None:
        super().__init__(target, take_back, renew)
        self._call = call
        self._connected = connected
        self._wake = asyncio.Event()
        #: The status of the call, if it has ended.
        self._status: AioRpcError | None = None
        call.add_done_callback(self._note_end)
        self._writer = asyncio.create_task(self._write_all())
        self._reader = asyncio.create_task(self._read_all())

    def doubt(self) -> None:
        """Do nothing: gRPC's own transport has no pings that its callers ask for."""

    def _go_on(self) -> None:
        self._wake.set()

    async def _write_all(self) -> None:
        write, wake = self._call.write, self._wake
        try:
            await self._connected()
            while True:
                while (request := self._next_request()) is not None:
                    await write(request)
                wake.clear()
                await wake.wait()
        except (AioRpcError, asyncio.InvalidStateError):
            # The reader finds the reason.
            return

    async def _read_all(self) -> None:
        try:
            while self.broken is None and isinstance(message := await self._call.read(), bytes):
                self._take(message)
            if self.broken is None:
                await self._call.code()
                self._end()
        except AioRpcError:
            self._end()
        except asyncio.CancelledError:
            self._break(ClosedError())
            raise
        finally:
            self._break(self._lost_track())

    def _note_end(self, call: Any) -> None:
        """Keep the server's status: a write after the end of the call would replace it with one without a reason.

        gRPC awaits this with each status that it sets, at once, so the coroutine does not wait.
        """
        code, details, trailing = _now(call.code()), _now(call.details()), _now(call.trailing_metadata())
        if self._status is None or self._status.details() == _WRITE_FAILED:
            self._status = AioRpcError(code, Metadata(), trailing, details)

    def _end(self) -> None:
        assert self._status is not None, "the call has ended"
        self._break(self._why(self._status))

    def _leave(self) -> None:
        self._writer.cancel()
        self._call.cancel()
        # gRPC keeps the connection of a call open as long as the call is referenced.
        del self._call

    def abandon(self, error: PequodError) -> None:
        """End the call at once, as if it had broken with this error."""
        super().abandon(error)
        self._reader.cancel()

    async def close(self) -> None:
        """End the call; batches under way fail."""
        # A reader that is cancelled before its first step would not see the stream break.
        self._break(ClosedError())
        self._reader.cancel()
        await asyncio.gather(self._writer, self._reader, return_exceptions=True)
        # The exception that ended them references their frames, which reference the call.
        del self._writer, self._reader


def _now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the status is set")
