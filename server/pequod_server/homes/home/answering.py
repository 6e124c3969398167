"""Loads on one standing stream, which a compute asks for one after another, and several at a time.

    compute  7: s|ann|   8: s|liz|  ->       home  <- 8: rows   <- 7: a piece   <- 7: the rest, with the place

A stream saves both ends the beginning and the end of a call for each load: half a millisecond of CPU at each end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.errors import PequodError
from pequod_server.wire.errors import command_error
from pequod_server.wire.handlers import Context, written

#: Loads of one stream that are answered at a time; the next one waits.
_LOADS_MAX: Final = 64

Answer = Callable[[pb.PeerLoadRequest], AsyncIterator[pb.PeerLoadReply]]


class LoadStream:
    """One stream of loads.

    Args:
        accept: Looks at a request before it is answered; an error that it raises ends the stream.
        answer: Yields the replies of one load.
    """

    def __init__(self, context: Context, accept: Callable[[pb.PeerLoadRequest], None], answer: Answer) -> None:
        self._context = context
        self._accept = accept
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_LOADS_MAX)
        self._writing = asyncio.Lock()
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Take no more loads; those under way are answered."""
        if not self._closing.done():
            self._closing.set_result(None)

    async def run(self) -> None:
        """Answer loads until the compute asks for no more, or the stream is closed."""
        reading = asyncio.create_task(self._read(), name="pequod peer loads")
        try:
            either: set[asyncio.Future[Any]] = {reading, self._closing}
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            # Requests that have not been read by now get no answer, and their compute asks for them elsewhere.
            reading.cancel()
            for one in done:
                one.result()
            while self._tasks:
                await asyncio.wait(tuple(self._tasks))
        finally:
            for task in (reading, *self._tasks):
                task.cancel()

    async def _read(self) -> None:
        while (request := await self._context.read()) is not aio.EOF:
            self._accept(request)
            await self._room.acquire()
            task = asyncio.create_task(self._serve(request), name="pequod peer load")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None and not self._closing.done():
            self._closing.set_exception(error)
            # Where the stream has ended meanwhile, no caller asks for it, and asyncio is not to call that an error.
            self._closing.exception()

    async def _serve(self, request: pb.PeerLoadRequest) -> None:
        try:
            async with aclosing(self._answer(request)) as replies:  # type: ignore[type-var]
                async for reply in replies:
                    reply.number = request.number
                    await self._write(reply)
                    del reply
        except PequodError as error:
            await self._write(pb.PeerLoadReply(number=request.number, refusal=command_error(error)))

    async def _write(self, reply: pb.PeerLoadReply) -> None:
        # gRPC takes one message at a time.
        async with self._writing:
            await written(self._context, reply)
