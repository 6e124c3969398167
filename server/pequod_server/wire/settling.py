"""Where replies wait until what they show is safe on disk; see data/disk.py.

    handler -> reply -> settle -> client     a call of one reply, and each reply of a stream

Hot calls have no handler: their connection waits (calls/hot.py).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from pequod_server.wire.handlers import Context, Continuation, Handler, Wrapped, method_of

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk


class Settling(aio.ServerInterceptor):
    """Lets replies go once the disk has what they show.

    Put it behind all others: refusals show nothing.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._settling = Wrapped(lambda _method, handler: self._around(handler))

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Wrap the method of a call."""
        handler = await continuation(details)
        return None if handler is None else self._settling.around(details.method, handler)

    def _around(self, handler: Handler) -> Handler:
        behaviour, make = method_of(handler)
        disk = self._disk

        async def reply_to(request: object, context: Context) -> Any:
            undone_count = disk.undone_count
            reply = await behaviour(request, _Settled(context, disk) if handler.response_streaming else context)
            await disk.settle(undone_count)
            return reply

        async def generate(request: object, context: Context) -> AsyncIterator[Any]:
            undone_count = disk.undone_count
            async with aclosing(behaviour(request, context)) as replies:
                async for reply in replies:
                    await disk.settle(undone_count)
                    yield reply

        settled: Any = generate if inspect.isasyncgenfunction(behaviour) else reply_to
        return make(settled, handler.request_deserializer, handler.response_serializer)


class _Settled:
    """The context of a call whose handler reads and writes by itself: each message that it writes waits."""

    __slots__ = ("_context", "_disk", "_undone_count")

    def __init__(self, context: Context, disk: Disk) -> None:
        self._context = context
        self._disk = disk
        self._undone_count = disk.undone_count

    async def read(self) -> Any:
        message = await self._context.read()
        self._undone_count = self._disk.undone_count
        return message

    async def write(self, message: Any) -> None:
        await self._disk.settle(self._undone_count)
        await self._context.write(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
