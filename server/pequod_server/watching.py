"""The call that tells of changes until its client has enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodServicer

from pequod.engine import Rows
from pequod.errors import BadRequestError, WatchCompactedError
from pequod_server.batch import ROW_BYTES
from pequod_server.bounds import last_of
from pequod_server.config import ServerConfig
from pequod_server.errors import stopping_status
from pequod_server.handlers import Context, end_call, refuse
from pequod_server.loader import Loader
from pequod_server.watches import Feed, Watches


class WatchHandlers(PequodServicer):
    """The call of watches, a part of the service."""

    _config: ServerConfig
    _header: Callable[[], pb.Header]
    _idle: set[asyncio.Task[Any]]
    _is_stopping: bool
    _loader: Loader | None
    _read: Callable[..., Awaitable[Any]]
    _watches: Watches
    server_id: int

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchReply]:
        """Tell the changes of a range as they come."""
        if request.rows and request.HasField("after"):
            await refuse(context, BadRequestError("a watch that goes on has no use for the rows"))
        bounds = request.first, last_of(request)
        if self._loader is not None:
            # Whatever it watches: where it begins, the other watches are settled.
            await self._loader.gate.opened()
        feed, header, rows = await self._read(context, lambda: self._open_watch(request), bounds)
        task = asyncio.current_task()
        assert task is not None
        self._idle.add(task)
        try:
            for chunk in _chunks(rows, self._config.chunk_bytes):
                yield pb.WatchReply(header=header, keys=chunk.keys, values=chunk.values)
            yield pb.WatchReply(header=header, ready=True)
            while True:
                while (batch := feed.take()) is not None:
                    changes = [pb.Change(key=key, old=old, new=new) for key, old, new in batch.changes]
                    header = pb.Header(server_id=self.server_id, revision=batch.revision)
                    yield pb.WatchReply(header=header, changes=changes)
                if feed.ended is not None:
                    await refuse(context, feed.ended)
                if not await feed.wait(request.progress_ms / 1000):
                    yield pb.WatchReply(header=self._header())
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._idle.discard(task)
            self._watches.detach(feed)
        await end_call(context, stopping_status())

    def _open_watch(self, request: pb.WatchRequest) -> tuple[Feed, pb.Header, Rows]:
        """Return a feed, the state at which it begins, and the rows of then if they are asked for."""
        bounds = request.first, last_of(request)
        if not request.HasField("after"):
            feed = self._watches.open(bounds)
            return feed, self._header(), feed.rows() if request.rows else Rows([], [])
        if request.after.server_id != self.server_id:
            raise WatchCompactedError("the server was started anew")
        return self._watches.reopen(bounds, request.after.revision), request.after, Rows([], [])


def _chunks(rows: Rows, bytes_max: int) -> Iterator[Rows]:
    start = size = 0
    for at, (key, value) in enumerate(zip(rows.keys, rows.values, strict=True)):
        size += len(key) + len(value) + ROW_BYTES
        if size > bytes_max and at > start:
            yield Rows(rows.keys[start:at], rows.values[start:at])
            start, size = at, len(key) + len(value) + ROW_BYTES
    if start < len(rows.keys):
        yield Rows(rows.keys[start:], rows.values[start:])
