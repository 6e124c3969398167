"""Watches: the changes of a range as they happen, across broken connections.

Watch --> rows (if asked for), ready, changes, changes ...  connection lost
Watch after the last revision --> ready, changes ...        nothing missed; or WatchCompactedError
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pequod_proto import pequod_pb2 as pb

from pequod.answers.changes import Change, Expired
from pequod.answers.rows import Rows
from pequod.calls import WatchEvent, to_age_s, token_of_reply
from pequod.client.decode import age_ms_of
from pequod.client.retry import pause_s
from pequod.client.tracing import caller_trace
from pequod.errors import UnavailableError

#: Programs that want to know of interruptions of a watch set the level of this logger to INFO.
log = logging.getLogger("pequod.client")


class Watched(Protocol):
    """The connection to the server of a watch."""

    timeout_s: float
    retries: int

    def stub(self) -> Any:
        """Return the stub of the service."""

    def failures(self) -> AbstractContextManager[None]:
        """Raise the error of a gRPC call as ours."""


async def follow(
    connection: Watched,
    request: pb.WatchRequest,
    reconnect_s: float,
    note: Callable[[pb.Header], None],
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of a range, the first as soon as the watch is established.

    Args:
        reconnect_s: How long to try to reach a server again.
        note: Notes the state that an event shows.
    """
    loop = asyncio.get_running_loop()
    asked_rows = request.rows
    state: pb.Header | None = None
    lost_at: float | None = None
    tries = 0
    while True:
        call = connection.stub().Watch(request, metadata=caller_trace())
        try:
            with connection.failures():
                async with asyncio.timeout(connection.timeout_s):
                    header, rows, origins = await _begin(call)
            note(header)
            if state is None:
                state = header
                yield _event(state, [], rows if asked_rows else None, origins)
            if lost_at is not None:
                log.info("the watch goes on; nothing was missed")
            lost_at, tries = None, 0
            while True:
                with connection.failures():
                    reply = await _next(call)
                state = reply.header
                note(state)
                yield _event(state, [_change(change) for change in reply.changes])
        except UnavailableError as error:
            if state is not None and lost_at is None and reconnect_s > 0:
                log.info("the server went away: %s; it is tried again for %g s", error.reason, reconnect_s)
            tries += 1
            wait_s = pause_s(tries)
            lost_at = lost_at or loop.time()
            away_s = loop.time() - lost_at
            if (
                (tries > connection.retries or away_s + wait_s >= connection.timeout_s)
                if state is None
                else away_s > reconnect_s
            ):
                raise
            with connection.failures():
                await asyncio.sleep(wait_s)
            if state is not None:
                request.rows = False
                request.after.CopyFrom(state)
                # The state that the watch has shown is fresh enough, and the server goes on from there.
                request.ClearField("freshness")
        finally:
            call.cancel()


def _event(
    state: pb.Header, changes: list[Change], rows: Rows | None = None, origins: tuple[bytes, ...] = ()
) -> WatchEvent:
    token, age_s = token_of_reply(state.token), to_age_s(age_ms_of(state))
    return WatchEvent(state.revision, changes, rows, state.server_id, token, age_s, origins)


async def _begin(call: Any) -> tuple[pb.Header, Rows, tuple[bytes, ...]]:
    """Return the state at which a watch begins, the rows that came before it, and the names of the server's data."""
    rows = Rows([], [])
    while True:
        reply = await _next(call)
        rows.keys.extend(reply.keys)
        rows.values.extend(reply.values)
        if reply.ready:
            return reply.header, rows, tuple(reply.origins)


async def _next(call: Any) -> pb.WatchReply:
    reply = await call.read()
    if not isinstance(reply, pb.WatchReply):
        raise UnavailableError("the target", "the server ended the watch")
    return reply


def _change(change: pb.Change) -> Change:
    old = change.old if change.HasField("old") else None
    made = Expired if change.reason == pb.Change.EXPIRED else Change
    return made(change.key, old, change.new if change.HasField("new") else None)
