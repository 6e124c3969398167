"""The calls that send the changes of a range, or of many, until their client ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final

import grpc
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Change, Expired, LimitExceededError, Rows
from pequod.errors import BadRequestError, PequodError, WatchCompactedError, refuse_empty_watch
from pequod_server.calls.feed import Feed
from pequod_server.calls.feeds import Feeds, RangeStart
from pequod_server.calls.served import ServedEngine
from pequod_server.calls.told_columns import ToldColumns, encoded, told_columns
from pequod_server.config import ServerConfig
from pequod_server.memory.admission import Admission
from pequod_server.wire.bounds import Bounds, last_of
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.fitting import fitting, row_sizes
from pequod_server.wire.handlers import Context, Handler, end_call

#: Rows that a watch looks at before it knows how large they are.
_FIRST_ROWS: Final = 1024
_WHOLE: Final = "a watch holds all rows of its range in memory: watch a part of the range, such as one group"


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


def handler_of_ranges(watch_ranges: Callable[[pb.WatchRangesRequest, Context], Any]) -> Handler:
    """Return the handler of WatchRanges, whose replies may be encoded already."""
    return grpc.unary_stream_rpc_method_handler(watch_ranges, pb.WatchRangesRequest.FromString, encoded)


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
        with _advising():
            feed, header, rows = await self._served.read(lambda _now: self._begin(request, bounds), [bounds], demand)
        with self._streaming(feed):
            async with aclosing(row_chunks(rows, self._admission, self._served.config)) as chunks:
                async for chunk in chunks:
                    yield pb.WatchReply(header=header, keys=chunk.keys, values=chunk.values)
                    del chunk
            # They may be many, and the watch may take long.
            del rows
            yield pb.WatchReply(header=header, ready=True, origins=self._origins())
            while True:
                while (batch := feed.take()) is not None:
                    if not batch.changes:
                        # It says that the range has ended, which the error does.
                        continue
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
        end_call(stopping_status())

    @contextmanager
    def _streaming(self, feed: Feed) -> Iterator[None]:
        """Keep account of the stream that this task sends; a cancellation by the server's end is no error."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._streams.discard(task)
            self.feeds.detach(feed)

    def _begin(self, request: pb.WatchRequest, bounds: Bounds) -> tuple[Feed, pb.Header, Rows]:
        """Return a feed, the state at which it begins, and the rows of that moment if the request asks for them."""
        if not request.HasField("after"):
            feed = self.feeds.open(bounds)
            return feed, self._served.header(), feed.rows() if request.rows else Rows([], [])
        if request.after.server_id != self._served.server_id:
            raise WatchCompactedError("the server was started anew")
        return self.feeds.reopen(bounds, request.after.revision), request.after, Rows([], [])

    async def watch_ranges(
        self, request: pb.WatchRangesRequest, _context: Context
    ) -> AsyncIterator[pb.WatchRangesReply | ToldColumns]:
        """Send the changes of many ranges as they come."""
        ranges = [_watched(one) for one in request.ranges]
        if not ranges:
            raise BadRequestError("a watch of no range tells nothing: name one at least")
        await self._served.opened()
        demand = self._served.demand(request)
        with _advising():
            feed, header, rows = await self._served.read(lambda _now: self._begin_ranges(request), ranges, demand)
        with self._streaming(feed):
            for number in sorted(rows):
                async with aclosing(row_chunks(rows.pop(number), self._admission, self._served.config)) as chunks:
                    async for chunk in chunks:
                        count = len(chunk.keys)
                        yield pb.WatchRangesReply(
                            header=header, ranges=[number], counts=[count], keys=chunk.keys, values=chunk.values
                        )
                        del chunk
            ready = pb.WatchRangesReply(header=header, ready=True, origins=self._origins())
            _tell_ended(ready, feed, sorted(feed.lost))
            yield ready
            while True:
                while (batch := feed.take()) is not None:
                    reply = pb.WatchRangesReply(header=self._served.header(batch.revision, batch.token))
                    _tell_ended(reply, feed, batch.ended)
                    told = told_columns(reply, batch)
                    del batch, reply
                    yield told
                    del told
                if feed.ended is not None:
                    raise feed.ended
                if not await feed.wait(request.progress_ms / 1000):
                    yield pb.WatchRangesReply(header=self._served.header())
        end_call(stopping_status())

    def _begin_ranges(self, request: pb.WatchRangesRequest) -> tuple[Feed, pb.Header, dict[int, Rows]]:
        """Return a feed, the state at which it begins, and the rows of the ranges that ask for them."""
        starts, strangers, asked = list[RangeStart](), list[int](), list[int]()
        for number, one in enumerate(request.ranges):
            after = None
            if one.HasField("after"):
                if one.after.server_id == self._served.server_id:
                    after = one.after.revision
                else:
                    strangers.append(number)
            if one.rows:
                asked.append(number)
            starts.append(RangeStart((one.first, last_of(one)), after))
        feed = self.feeds.open_ranges(starts)
        try:
            for number in strangers:
                feed.lose(number, WatchCompactedError("the server was started anew"))
            return feed, self._served.header(), {one: feed.rows(one) for one in asked if one not in feed.lost}
        except PequodError:
            self.feeds.forget(feed)
            raise


@contextmanager
def _advising() -> Iterator[None]:
    """Say what to do where memory has no room for what watches hold."""
    try:
        yield
    except LimitExceededError as error:
        if not error.is_of_memory:
            raise
        raise error.with_advice(_WHOLE) from error


def _watched(one: pb.WatchedRange) -> Bounds:
    """Return a range that is to be watched.

    Raises:
        BadRequestError: Nothing can be told of it.
    """
    if one.rows and one.HasField("after"):
        raise BadRequestError("a watch that goes on has no use for the rows")
    bounds = one.first, last_of(one)
    refuse_empty_watch(*bounds)
    return bounds


def _told(change: Change) -> pb.Change:
    told = pb.Change(key=change.key, old=change.old, new=change.new)
    if isinstance(change, Expired):
        told.reason = pb.Change.EXPIRED
    return told


def _tell_ended(reply: pb.WatchRangesReply, feed: Feed, numbers: Sequence[int]) -> None:
    reply.ended.extend(numbers)
    reply.reasons.extend([str(feed.lost[number]) for number in numbers])
