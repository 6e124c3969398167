"""Watches that many readers share: a thousand browsers on one timeline are one watch of the engine.

    Feed -> pump -> [event event event | event]  <- reader, reader, reader: each at a place of its own
                     ^ kept: so a reader whose connection broke goes on where it was

A reader that is so far behind that the next event for it is not kept any more ends, and begins anew with the rows. The
watch ends a while after its last reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, NamedTuple

import orjson
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Change, Engine, Rows
from pequod.errors import BadRequestError, WatchCompactedError, refuse_empty_watch
from pequod.json_bytes import json_bytes
from pequod_server.calls.feed import Feed
from pequod_server.calls.revision_changes import RevisionChanges
from pequod_server.calls.served import ServedEngine
from pequod_server.calls.service import PequodService
from pequod_server.calls.watching import row_chunks
from pequod_server.memory.admission import Admission
from pequod_server.wire.bounds import Bounds, last_of
from pequod_server.wire.errors import stopping_status
from pequod_server.wire.handlers import CallEnded, Context

#: The events that a watch keeps for readers that are behind or come again.
_KEPT: Final = 1000
_KEPT_BYTES: Final = 1 << 20
#: A reader without news gets a comment after this time, so that a connection which is broken is found out.
_QUIET_S: Final = 15.0
_COMMENT: Final = b": nothing new\n\n"


class _Event(NamedTuple):
    """One revision's changes, as they go to readers."""

    revision: int
    data: bytes


def event(kind: str, members: object, name: str = "") -> bytes:
    """Return an event as it stands in a stream; ``name`` is where a reader that has it goes on."""
    head = f"event: {kind}\n" + (f"id: {name}\n" if name else "")
    return head.encode() + b"data: " + orjson.dumps(members) + b"\n\n"


class SharedWatch:
    """The watch of one range.

    Args:
        name_of: Returns the name of an event by its revision.

    Invariants:
        1. ``_events`` are those numbered from ``_first`` on, all later than revision ``floor``.
    """

    def __init__(self, feed: Feed, engine: Engine, name_of: Callable[[int], str]) -> None:
        self.feed = feed
        self._engine = engine
        self._name_of = name_of
        self.floor = feed.floor
        self._events: list[_Event] = []
        self._first = 0
        self._bytes = 0
        self.readers = 0
        #: Why there will be no more.
        self.ended: Exception | None = None
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pump = asyncio.create_task(self._pump(), name="pequod shared watch")

    @property
    def next_number(self) -> int:
        """The number that the next event will have."""
        return self._first + len(self._events)

    def number_after(self, revision: int) -> int | None:
        """Return the number of the first event after a revision; None: it may not be kept any more."""
        if revision < self.floor or self.ended is not None or revision > self._engine.revision:
            return None
        return self._first + sum(one.revision <= revision for one in self._events)

    async def follow(self, number: int, after: int) -> AsyncGenerator[bytes]:
        """Yield the events from a number on that are later than a revision.

        Raises:
            WatchCompactedError: The reader is too far behind, or the watch has ended.
        """
        while True:
            while number < self.next_number:
                if number < self._first:
                    raise WatchCompactedError("the reader is too far behind; it begins anew")
                one = self._events[number - self._first]
                number += 1
                if one.revision > after:
                    yield one.data
            if self.ended is not None:
                raise self.ended
            done, _ = await asyncio.wait([self._news], timeout=_QUIET_S)
            if not done:
                yield _COMMENT

    def end(self, error: Exception) -> None:
        """End all readers."""
        if self.ended is None:
            self.ended = error
            self._wake()

    def close(self) -> None:
        """Stop following the range."""
        self.pump.cancel()
        self._engine.ledger.change_watches(-self._bytes)
        self._events.clear()
        self._bytes = 0

    async def _pump(self) -> None:
        while True:
            while (batch := self.feed.take()) is not None:
                self._append(batch)
                # A turn for readers, before the next.
                await asyncio.sleep(0)
            if self.feed.ended is not None:
                self.end(self.feed.ended)
                return
            await self.feed.wait(0)

    def _append(self, batch: RevisionChanges) -> None:
        changes = [_told(change) for change in batch.changes]
        data = event("changes", {"changes": changes, "revision": batch.revision}, self._name_of(batch.revision))
        self._events.append(_Event(batch.revision, data))
        grown = len(data)
        while len(self._events) > _KEPT or (self._bytes + grown > _KEPT_BYTES and len(self._events) > 1):
            dropped = self._events.pop(0)
            self._first += 1
            self.floor = dropped.revision
            grown -= len(dropped.data)
        self._bytes += grown
        self._engine.ledger.change_watches(grown)
        self._wake()

    def _wake(self) -> None:
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()


def _told(change: Change) -> dict[str, object]:
    old, new = (None if value is None else json_bytes(value) for value in (change.old, change.new))
    told: dict[str, object] = {"key": json_bytes(change.key), "old": old, "new": new}
    return told | {"reason": change.reason} if change.reason else told


class SharedWatches:
    """The shared watches of a server.

    Invariants:
        1. A watch in ``_watches`` has readers, or a timer in ``_closing`` that will close it.
    """

    def __init__(self, service: PequodService, admission: Admission) -> None:
        self._served: ServedEngine = service.served
        self._feeds = service.feeds
        self._admission = admission
        self._watches: dict[Bounds, SharedWatch] = {}
        self._closing: dict[Bounds, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def end(self) -> None:
        """End all readers, since the server stops."""
        for watch in self._watches.values():
            watch.end(CallEnded(stopping_status()))

    def close(self) -> None:
        """Close all watches."""
        for bounds in tuple(self._watches):
            self._close(bounds)

    async def watch(self, request: pb.WatchRequest, _context: Context) -> AsyncIterator[bytes]:
        """Yield the rows of a range and then its changes, as events; only the changes if the reader has the rows."""
        bounds = request.first, last_of(request)
        refuse_empty_watch(*bounds)
        demand = self._served.demand(request)
        if (found := self._found(request, bounds)) is not None:
            watch, number = found
            with self._read(bounds, watch):
                # The loop ends by an error alone.
                async with aclosing(watch.follow(number, request.after.revision)) as events:
                    async for data in events:
                        yield data
        await self._served.opened()
        watch, revision, rows = await self._served.read(lambda _now: self._begun(bounds), [bounds], demand)
        number = watch.next_number
        with self._read(bounds, watch):
            yield event("reset", {"revision": revision})
            async with aclosing(row_chunks(rows, self._admission, self._served.config)) as chunks:
                async for chunk in chunks:
                    pairs = zip(*chunk, strict=True)
                    yield event("rows", {"rows": [[json_bytes(key), json_bytes(value)] for key, value in pairs]})
                    del chunk, pairs
            del rows
            yield event("ready", {"revision": revision}, self.name_of(revision))
            async with aclosing(watch.follow(number, revision)) as events:
                async for data in events:
                    yield data

    def name_of(self, revision: int) -> str:
        """Return the name of the event that led to a revision."""
        return f"{self._served.server_id}.{revision}"

    def after_of(self, name: str) -> pb.Header | None:
        """Return the state that an event's name names, None if it is of another server.

        Raises:
            BadRequestError: It is no name of an event.
        """
        server, _, revision = name.partition(".")
        if not (server.isascii() and server.isdigit() and revision.isascii() and revision.isdigit() and len(name) < 50):
            raise BadRequestError(f"the name of the last event, {name[:50]!r}, is none that a watch has given")
        if int(server) != self._served.server_id:
            return None
        return pb.Header(server_id=int(server), revision=min(int(revision), (1 << 64) - 1))

    def _found(self, request: pb.WatchRequest, bounds: Bounds) -> tuple[SharedWatch, int] | None:
        """Return a watch that has all that came after what the reader has seen, and the number of the next event."""
        watch = self._watches.get(bounds)
        if watch is None or not request.HasField("after"):
            return None
        number = watch.number_after(request.after.revision)
        return None if number is None else (watch, number)

    def _begun(self, bounds: Bounds) -> tuple[SharedWatch, int, Rows]:
        """Return the watch of a range, the present revision, and its rows."""
        watch = self._watches.get(bounds)
        if watch is not None and watch.ended is not None:
            self._close(bounds)
            watch = None
        if watch is None:
            feed = self._feeds.open(bounds)
            watch = self._watches[bounds] = SharedWatch(feed, self._served.engine, self.name_of)
            self._close_later(bounds)
        return watch, self._served.engine.revision, watch.feed.rows()

    @contextmanager
    def _read(self, bounds: Bounds, watch: SharedWatch) -> Iterator[None]:
        """Count a reader."""
        watch.readers += 1
        if (closing := self._closing.pop(bounds, None)) is not None:
            closing.cancel()
        try:
            yield
        finally:
            watch.readers -= 1
            if not watch.readers and self._watches.get(bounds) is watch:
                self._close_later(bounds)

    def _close_later(self, bounds: Bounds) -> None:
        later = asyncio.get_running_loop().call_later(self._served.config.watch_linger_s, self._close, bounds)
        self._closing[bounds] = later

    def _close(self, bounds: Bounds) -> None:
        if (closing := self._closing.pop(bounds, None)) is not None:
            closing.cancel()
        watch = self._watches.pop(bounds)
        watch.close()
        self._feeds.forget(watch.feed)
