"""The batches of one stream that only the home can run: it runs them on a stream of its own, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import has_writes, needs
from pequod_server.passing.links import Refused
from pequod_server.passing.named_ranges import command_ranges
from pequod_server.passing.passing import Passing
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.handlers import end_call
from pequod_server.worker import HOME_ID


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

    async def run(self, request: pb.ExecuteRequest, message: bytes, write: Callable[[Any], Awaitable[None]]) -> None:
        """Have the home run a batch, and write the pieces of its reply.

        Raises:
            CallEnded: As the home has ended the stream.
        """
        if self._call is None:
            self._call = self._passing.link(HOME_ID).execute()
        self._passing.passed += 1
        try:
            await self._call.write(message)
            while True:
                piece = await self._call.read()
                if piece is aio.EOF:
                    end_call(stopping_status())
                reply = pb.ExecuteReply.FromString(piece)
                if not reply.more:
                    break
                await write(piece)
        except aio.AioRpcError as error:
            raise Refused(error).ended() from None
        if has_writes(request.kinds):
            ranges = [one for _, one in command_ranges(request.kinds, request.arguments)]
            await self._passing.come_to(reply.token, ranges)
        await write(piece)

    def end(self) -> None:
        """End the stream."""
        if self._call is not None:
            self._call.cancel()
