"""The call that sends the changes of a range until its client ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Rows
from pequod.errors import BadRequestError, WatchCompactedError
from pequod_server.batch import ROW_BYTES
from pequod_server.bounds import Bounds, last_of
from pequod_server.errors import stopping_status
from pequod_server.feeds import Feed, Feeds
from pequod_server.handlers import Context, end_call
from pequod_server.served import ServedEngine


class WatchCalls:
    """Answers Watch."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served
        #: The feeds of all watches.
        self.feeds = Feeds(served.engine, served.config, served.loader)
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
        # For every range, since the other watches are settled where this one begins.
        await self._served.opened()
        feed, header, rows = await self._served.read(lambda _now: self._begin(request, bounds), *bounds)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            for chunk in _chunks(rows, self._served.config.chunk_bytes):
                yield pb.WatchReply(header=header, keys=chunk.keys, values=chunk.values)
            yield pb.WatchReply(header=header, ready=True)
            while True:
                while (batch := feed.take()) is not None:
                    changes = [pb.Change(key=key, old=old, new=new) for key, old, new in batch.changes]
                    header = self._served.header(batch.revision)
                    yield pb.WatchReply(header=header, changes=changes)
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


def _chunks(rows: Rows, bytes_max: int) -> Iterator[Rows]:
    start = size = 0
    for at, (key, value) in enumerate(zip(rows.keys, rows.values, strict=True)):
        size += len(key) + len(value) + ROW_BYTES
        if size > bytes_max and at > start:
            yield Rows(rows.keys[start:at], rows.values[start:at])
            start, size = at, len(key) + len(value) + ROW_BYTES
    if start < len(rows.keys):
        yield Rows(rows.keys[start:], rows.values[start:])
