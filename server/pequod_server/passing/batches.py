"""The batches of one stream that only the home can run: it runs them on a stream of its own, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import has_writes, is_harmless_twice, needs
from pequod_server.passing.links import HomeWait, Refused
from pequod_server.passing.named_ranges import command_ranges
from pequod_server.passing.passing import Passing
from pequod_server.wire.errors import stopping_status
from pequod_server.worker import HOME_ID

_Write = Callable[[Any], Awaitable[None]]


class PassedBatches:
    """Passes batches of one stream on."""

    __slots__ = ("_call", "_passing")

    def __init__(self, passing: Passing) -> None:
        self._passing = passing
        #: The stream to the home; None: none was needed yet.
        self._call: Any = None

    def are_needed(self, request: pb.ExecuteRequest) -> bool:
        """Return whether only the home can run a batch."""
        passing = self._passing
        # Columns that do not fit are refused here.
        fit = needs(request.kinds)
        does_fit = fit.unknown is None and fit.argument_count == len(request.arguments)
        return not passing.is_home and does_fit and not passing.shared.have_batch(request.kinds, request.arguments)

    async def run(self, request: pb.ExecuteRequest, message: bytes, write: _Write) -> None:
        """Have the home run a batch, and write the pieces of its reply.

        A home that is away is waited for, unless it may have run the batch already and would run it once more.

        Raises:
            CallEnded: As the home has ended the stream.
        """
        is_harmless = is_harmless_twice(request.kinds, has_ids=bool(request.batch_id))
        self._passing.passed += 1
        waiting, has_begun = HomeWait(), False

        async def write_piece(piece: bytes) -> None:
            nonlocal has_begun
            has_begun = True
            await write(piece)

        while True:
            try:
                last, token = await self._answer(message, write_piece)
                break
            except aio.AioRpcError as error:
                refused = Refused(error)
            await waiting.pause(refused, may_repeat=not has_begun and (refused.is_unapplied or is_harmless))
        if has_writes(request.kinds):
            ranges = [one for _, one in command_ranges(request.kinds, request.arguments)]
            await self._passing.come_to(token, ranges)
        await write(last)

    async def _answer(self, message: bytes, write: _Write) -> tuple[bytes, bytes]:
        """Write all pieces of the home's reply but the last one; return that and the token of its state.

        Raises:
            AioRpcError: The stream has ended before.
        """
        # A home that was started again has ended the stream.
        if self._call is None or self._call.done():
            self._call = self._passing.link(HOME_ID).execute()
        # One that found no connection is over at once, and a read tells why.
        if not self._call.done():
            await self._call.write(message)
        while True:
            piece = await self._call.read()
            if piece is aio.EOF:
                status = stopping_status()
                raise aio.AioRpcError(
                    status.code, aio.Metadata(), aio.Metadata(*(status.trailing_metadata or ())), status.details
                )
            reply = pb.ExecuteReply.FromString(piece)
            if not reply.more:
                return piece, reply.token
            await write(piece)

    def end(self) -> None:
        """End the stream."""
        if self._call is not None:
            self._call.cancel()
