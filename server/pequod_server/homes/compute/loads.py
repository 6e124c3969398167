"""Loads from one home on a standing stream, several at a time.

    load 7, load 8  ->  one stream  ->  a piece of 8, a piece of 7, the rest of 8

A call of its own for each load costs three times as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.errors import BackingUnavailableError, PequodError
from pequod.refusals import rebuilt

#: What writing raises on a stream that has ended, which the reader tells in full.
_OVER: Final = (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError)


class LoadsEndedError(Exception):
    """The home takes no more loads on this stream; a call for this one may say why."""


class LoadCalls:
    """The stream of loads of one channel, which begins with the first load and again after it has ended.

    Args:
        name: The home, for people.
        begin: Begins a stream.

    Invariants:
        1. ``_waiting`` has the loads under way by their numbers, each with what came for it.
    """

    def __init__(self, name: str, begin: Callable[[], Any]) -> None:
        self._name = name
        self._begin = begin
        self._call: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._number = 0
        self._waiting: dict[int, asyncio.Queue[pb.PeerLoadReply | Exception]] = {}

    async def load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        """Yield the pieces of one load.

        Raises:
            PequodError: The home refuses it.
            LoadsEndedError: The home ended the stream, and has not begun with this load.
            AioRpcError: The stream broke, or the home knows no such streams.
        """
        self._number += 1
        number = request.number = self._number
        came = self._waiting[number] = asyncio.Queue()
        try:
            await self._send(request)
            while True:
                reply = await came.get()
                if isinstance(reply, Exception):
                    raise reply
                if reply.HasField("refusal"):
                    raise _error_of(self._name, reply.refusal)
                yield reply
                if reply.HasField("place"):
                    return
        finally:
            del self._waiting[number]

    async def _send(self, request: pb.PeerLoadRequest) -> None:
        if self._call is None:
            self._call = self._begin()
            self._reading = asyncio.create_task(self._read(self._call), name="pequod loads from a home")
        call = self._call
        # gRPC takes one message at a time.
        async with self._writing:
            try:
                await call.write(request)
            except _OVER as error:
                if self._call is not call:
                    # The reader has told those who waited then.
                    raise LoadsEndedError from error

    async def _read(self, call: Any) -> None:
        end: Exception = LoadsEndedError()
        try:
            while (reply := await call.read()) is not aio.EOF:
                if (came := self._waiting.get(reply.number)) is not None:
                    came.put_nowait(reply)
        except aio.AioRpcError as error:
            end = error
        finally:
            self._call = None
            for came in self._waiting.values():
                came.put_nowait(end)


def _error_of(name: str, refusal: pb.CommandError) -> PequodError:
    error = rebuilt(refusal.reason, refusal.message, dict(refusal.facts))
    return BackingUnavailableError(name, refusal.message) if type(error) is PequodError else error
