"""Watches over the servers of a cluster: when its server goes away, a watch goes on at another one.

    at c1   rows, change, change, change             a copy of the rows is kept up to date
            c1 goes away
    at c2   rows, as of a state that has at least    the differences from the copy are one event
            what was shown
            change, change ...

Feeds of two servers cannot be joined: each has revisions of its own. So the other server gives all rows, and the
differences are exact, for the memory of one copy of the range.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.answers.changes import Change
from pequod.calls import WatchEvent
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routed
from pequod.client.cluster.scans import next_node
from pequod.client.retry import pause_s
from pequod.client.watch import follow, log
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.errors import DeadlineExceededError, UnavailableError, WatchCompactedError

#: How long a watch waits for an event before it asks whether its server is alive, and for the answer.
_QUIET_S: Final = 1.0
_PROBE_S: Final = 1.0
E = TypeVar("E")


class _CopiedRows:
    """The rows of a watched range, as its events have shown them."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] | None = None

    def shown(self, event: WatchEvent) -> WatchEvent:
        """Take the rows or the changes of an event; return it with the changes alone."""
        before = self._rows
        if event.rows is None:
            assert before is not None, "the first event has rows"
            for change in event.changes:
                if change.new is None:
                    before.pop(change.key, None)
                else:
                    before[change.key] = change.new
            return event
        after = self._rows = dict(zip(event.rows.keys, event.rows.values, strict=True))
        if before is None:
            return replace(event, rows=None)
        keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        changes = [Change(key, before.get(key), after.get(key)) for key in keys]
        return replace(event, rows=None, changes=changes)


async def follow_anywhere(
    cluster: Routed, request: pb.WatchRequest, reconnect_s: float, note: Callable[[pb.Header], None]
) -> AsyncGenerator[WatchEvent]:
    """Yield the events of a range; a watch that cannot go on begins anew, and gives the differences.

    Args:
        reconnect_s: How long to try to reach a server again.
        note: Notes the state that an event shows.

    Raises:
        WatchCompactedError: The watch was to continue after an event, and the server of that event is gone.
    """
    if request.HasField("after"):
        async with aclosing(_continued(cluster, request, note)) as events:
            async for event in events:
                yield event
        return
    asks_rows = request.rows
    request.rows = True
    copy, last = _CopiedRows(), None
    clock = asyncio.get_running_loop().time
    lost_at, pauses = clock(), 0
    tried: set[Node] = set()
    while True:
        node: Node | None = None
        try:
            node = next_node(cluster, request.first, tried)
            async with aclosing(_at(node, request, note)) as events:
                async for event in events:
                    shown = copy.shown(event)
                    if asks_rows and last is None:
                        shown = event
                    last, pauses = event, 0
                    tried.clear()
                    yield shown
                    lost_at = clock()
        except (UnavailableError, WatchCompactedError) as error:
            log.info("the watch cannot go on: %s; it begins anew, with the differences", error)
            if isinstance(error, UnavailableError) and node is not None:
                tried.add(node)
            if last is not None:
                # Fresher than what the caller has asked for, and has got.
                request.ClearField("freshness")
                if last.token.positions:
                    request.freshness.after = bytes(last.token)
            if isinstance(error, UnavailableError) and _has_another(cluster, request.first, tried):
                continue
            pauses += 1
            wait_s = pause_s(pauses)
            if (clock() + wait_s > lost_at + reconnect_s) if last is not None else pauses > cluster.retries:
                raise
            tried.clear()
            await asyncio.sleep(wait_s)


def _has_another(cluster: Routed, key: bytes, tried: set[Node]) -> bool:
    """Return whether there is a node for a read that is not in ``tried``; the map may have none at all."""
    assert cluster.routes is not None, "calls wait for the map"
    return not tried.issuperset(cluster.routes.readers(key))


async def _continued(
    cluster: Routed, request: pb.WatchRequest, note: Callable[[pb.Header], None]
) -> AsyncGenerator[WatchEvent]:
    """Yield the events after one that the caller has, from the server that gave it."""
    tried: set[Node] = set()
    while True:
        node = next_node(cluster, request.first, tried)
        tried.add(node)
        has_begun = False
        try:
            async with aclosing(_at(node, request, note)) as events:
                async for event in events:
                    has_begun = True
                    yield event
        except (UnavailableError, WatchCompactedError) as error:
            if has_begun and isinstance(error, UnavailableError):
                raise WatchCompactedError(f"its server went away: {error.reason}") from error
            if has_begun or next_node(cluster, request.first, tried) in tried:
                raise


async def follow_ranges_somewhere(
    cluster: Routed, ranges: Sequence[WatchedRange], progress_ms: int, note: Callable[[pb.Header], None]
) -> AsyncGenerator[RangesEvent]:
    """Yield the events of many ranges, from the first server that answers, until it goes away.

    Args:
        note: Notes the state that an event shows.

    Raises:
        UnavailableError: The server is gone; or none answers.
    """
    tried: set[Node] = set()
    while True:
        node = next_node(cluster, ranges[0].first, tried)
        tried.add(node)
        has_begun = False
        try:
            events = node.connection.watch_ranges(ranges, progress_ms, note)
            async with aclosing(_while_alive(node, events)) as living:
                async for event in living:
                    has_begun = True
                    yield event
        except UnavailableError:
            # The next watch is to ask another one.
            node.lose()
            if has_begun or next_node(cluster, ranges[0].first, tried) in tried:
                raise


async def _at(node: Node, request: pb.WatchRequest, note: Callable[[pb.Header], None]) -> AsyncGenerator[WatchEvent]:
    """Yield the events of a watch at one server, as long as it is alive and in the cluster.

    Raises:
        UnavailableError: The server is gone, or gives no sign of life.
    """
    asked = pb.WatchRequest()
    asked.CopyFrom(request)
    async with aclosing(_while_alive(node, follow(node.connection, asked, -1.0, note))) as events:
        async for event in events:
            yield event


async def _while_alive(node: Node, events: AsyncGenerator[E]) -> AsyncGenerator[E]:
    """Yield what a server sends, as long as it gives signs of life.

    Raises:
        UnavailableError: The server is gone, or gives no sign of life.
    """
    pending: asyncio.Future[E] | None = None
    try:
        while True:
            pending = asyncio.ensure_future(anext(events))
            while not pending.done():
                await asyncio.wait((pending,), timeout=_QUIET_S)
                if not pending.done():
                    await _see_alive(node)
            try:
                event = pending.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        if pending is not None:
            # It may also have failed while the server was asked; asyncio wants that to be looked at.
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()


async def _see_alive(node: Node) -> None:
    """Ask a server for a sign of life.

    Raises:
        UnavailableError: There is none.
    """
    try:
        await node.connection.probe(_PROBE_S)
    except DeadlineExceededError:
        raise UnavailableError(node.connection.target, "it gives no sign of life") from None
