"""The call that sends the changes of a range until its client ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Change, Expired, Rows
from pequod.errors import BadRequestError, WatchCompactedError, refuse_empty_watch
from pequod_server.calls.feeds import Feed, Feeds
from pequod_server.calls.served import ServedEngine
from pequod_server.config import ServerConfig
from pequod_server.memory.admission import Admission
from pequod_server.wire.bounds import Bounds, last_of
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.fitting import fitting, row_sizes
from pequod_server.wire.handlers import Context, end_call

#: Rows that a watch looks at before it knows how large they are.
_FIRST_ROWS: Final = 1024


async def row_chunks(rows: Rows, admission: Admission, config: ServerConfig) -> AsyncGenerator[Rows]:
    """Yield the first rows of a watch in chunks; each comes once there is memory for it, like those of a scan."""
    keys, values = rows
    chunks = admission.chunks(config.chunk_bytes)
    start, wanted = 0, _FIRST_ROWS
    while start < len(keys):
        async with chunks.room() as room_bytes:
            some = slice(start, start + wanted)
            count, size = fitting(row_sizes(keys[some], values[some]), room_bytes)
            if not chunks.has_room(size):
                continue
            stop = start + count
            yield Rows(keys[start:stop], values[start:stop])
        # Neither many more than fit nor few: each chunk looks at the lengths of these.
        start, wanted = stop, min(4 * count, config.rows_max)


class WatchCalls:
    """Answers Watch."""

    def __init__(self, served: ServedEngine, admission: Admission, origins: Callable[[], Sequence[bytes]]) -> None:
        self._served = served
        self._origins = origins
        self._admission = admission
        #: The feeds of all watches.
        self.feeds = Feeds(served.engine, served.config, served.databases, lambda: served.levels.token)
        #: The streams that send changes: they would delay the end of the server.
        self._streams: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    def end(self) -> None:
        """End the streams now, and close the feeds that no stream reads."""
        self._is_stopping = True
        self.feeds.close()
        for task in tuple(self._streams):
            task.cancel()

    async def watch(self, request: pb.WatchRequest, _context: Context) -> AsyncIterator[pb.WatchReply]:
        """Send the changes of a range as they come."""
        if request.rows and request.HasField("after"):
            raise BadRequestError("a watch that goes on has no use for the rows")
        bounds = request.first, last_of(request)
        refuse_empty_watch(*bounds)
        demand = self._served.demand(request)
        # For every range, since the other watches are settled where this one begins.
        await self._served.opened()
        feed, header, rows = await self._served.read(lambda _now: self._begin(request, bounds), *bounds, demand)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            async with aclosing(row_chunks(rows, self._admission, self._served.config)) as chunks:
                async for chunk in chunks:
                    yield pb.WatchReply(header=header, keys=chunk.keys, values=chunk.values)
                    del chunk
            # They may be many, and the watch may take long.
            del rows
            yield pb.WatchReply(header=header, ready=True, origins=self._origins())
            while True:
                while (batch := feed.take()) is not None:
                    changes = [_told(change) for change in batch.changes]
                    header = self._served.header(batch.revision, batch.token)
                    reply = pb.WatchReply(header=header, changes=changes)
                    del batch, changes
                    yield reply
                    del reply
                if feed.ended is not None:
                    raise feed.ended
                if not await feed.wait(request.progress_ms / 1000):
                    yield pb.WatchReply(header=self._served.header())
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._streams.discard(task)
            self.feeds.detach(feed)
        end_call(stopping_status())

    def _begin(self, request: pb.WatchRequest, bounds: Bounds) -> tuple[Feed, pb.Header, Rows]:
        """Return a feed, the state at which it begins, and the rows of that moment if the request asks for them."""
        if not request.HasField("after"):
            feed = self.feeds.open(bounds)
            return feed, self._served.header(), feed.rows() if request.rows else Rows([], [])
        if request.after.server_id != self._served.server_id:
            raise WatchCompactedError("the server was started anew")
        return self.feeds.reopen(bounds, request.after.revision), request.after, Rows([], [])


def _told(change: Change) -> pb.Change:
    told = pb.Change(key=change.key, old=change.old, new=change.new)
    if isinstance(change, Expired):
        told.reason = pb.Change.EXPIRED
    return told
