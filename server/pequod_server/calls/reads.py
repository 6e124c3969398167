"""The calls that read and reply with one message."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import range_arguments
from pequod.commands.kinds import COUNT, GET
from pequod_server.calls.served import ServedEngine
from pequod_server.wire.bounds import range_of
from pequod_server.wire.fitting import ROW_BYTES
from pequod_server.wire.handlers import Context


class ReadCalls:
    """Answers Get, MultiGet and Count."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._answer = served.executor.answer

    async def get(self, request: pb.GetRequest, _context: Context) -> pb.GetReply:
        """Get one value."""
        value, _ = await self._answer(GET, request.key, demand=self._served.demand(request))
        return pb.GetReply(header=self._served.header(), value=value)

    async def multi_get(self, request: pb.MultiGetRequest, _context: Context) -> pb.MultiGetReply:
        """Get many values, as many as fit into a reply."""
        self._served.refuse_many(len(request.keys))
        demand = self._served.demand(request)
        room = self._served.config.reply_bytes_max
        values: list[bytes] = []
        present: list[bool] = []
        for value in await self._served.executor.get_all(request.keys[:], demand):
            room -= len(value or b"") + ROW_BYTES
            if room < 0 and values:
                break
            values.append(value or b"")
            present.append(value is not None)
        return pb.MultiGetReply(header=self._served.header(), values=values, present=present)

    async def count(self, request: pb.CountRequest, _context: Context) -> pb.CountReply:
        """Count the keys of a range."""
        bounds = range_arguments(*range_of(request))
        count, _ = await self._answer(COUNT, *bounds, demand=self._served.demand(request))
        return pb.CountReply(header=self._served.header(), count=count)
