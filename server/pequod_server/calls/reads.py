"""The calls that read and reply with one message."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod_server.calls.served import ServedEngine
from pequod_server.freshness.demands import level_of
from pequod_server.wire.bounds import range_of
from pequod_server.wire.fitting import ROW_BYTES
from pequod_server.wire.handlers import Context


class ReadCalls:
    """Answers Get, MultiGet, Count and Splits."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        self._engine = served.engine

    async def get(self, request: pb.GetRequest, _context: Context) -> pb.GetReply:
        """Get one value."""
        key, demand = request.key, self._served.levels.demand(level_of(request))
        value = await self._served.read(lambda now: self._engine.get(key, now=now), key, key + b"\0", demand)
        return pb.GetReply(header=self._served.header(), value=value)

    async def multi_get(self, request: pb.MultiGetRequest, _context: Context) -> pb.MultiGetReply:
        """Get many values, as many as fit into a reply."""
        self._served.refuse_many(len(request.keys))
        demand = self._served.levels.demand(level_of(request))
        room = self._served.config.reply_bytes_max
        values: list[bytes] = []
        present: list[bool] = []
        for value in await self._served.read_keys(request.keys[:], demand):
            room -= len(value or b"") + ROW_BYTES
            if room < 0 and values:
                break
            values.append(value or b"")
            present.append(value is not None)
        return pb.MultiGetReply(header=self._served.header(), values=values, present=present)

    async def count(self, request: pb.CountRequest, _context: Context) -> pb.CountReply:
        """Count the keys of a range."""
        (first, last), demand = range_of(request), self._served.levels.demand(level_of(request))
        count = await self._served.read(lambda now: self._engine.count(first, last, now=now), first, last, demand)
        return pb.CountReply(header=self._served.header(), count=count)

    async def splits(self, request: pb.SplitsRequest, _context: Context) -> pb.SplitsReply:
        """Return keys at which a range can be cut into parts of similar size."""
        self._served.refuse_many(request.count)
        keys = self._engine.splits(*range_of(request), request.count)
        return pb.SplitsReply(header=self._served.header(), keys=keys)
