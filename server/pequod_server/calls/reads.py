"""The calls that read and reply with one message."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import range_arguments
from pequod.commands.kinds import COUNT, GET, TTL
from pequod.language.deadlines import to_remaining_ms
from pequod_server.calls.served import ServedEngine
from pequod_server.wire.bounds import range_of
from pequod_server.wire.fitting import ROW_BYTES
from pequod_server.wire.handlers import Context


class ReadCalls:
    """Answers Get, MultiGet, Count and Ttl."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._answer = served.executor.answer

    async def get(self, request: pb.GetRequest, _context: Context) -> pb.GetReply:
        """Get one value."""
        value, _ = await self._answer(GET, request.key, demand=self._served.demand(request))
        return pb.GetReply(header=self._served.header(), value=value)

    async def ttl(self, request: pb.TtlRequest, _context: Context) -> pb.TtlReply:
        """Return how long a key lives."""
        left_s, _ = await self._answer(TTL, request.key, demand=self._served.demand(request))
        remaining_ms = None if left_s is None else to_remaining_ms(left_s)
        return pb.TtlReply(header=self._served.header(), remaining_ms=remaining_ms)

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
