"""Watches: the changes of a range as they come, over broken connections.

Watch --> rows (if asked for), ready, changes, changes ...  connection lost
Watch after the last revision --> ready, changes ...        nothing missed; or WatchCompactedError
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.calls import WatchEvent
from pequod.engine.rows import Rows
from pequod.engine.watches import Change
from pequod.errors import UnavailableError

#: Pauses between attempts to reach the server again: doubled from the one to the other.
_PAUSES_S: Final = (0.05, 2.0)


async def follow(
    connected: Callable[[], Any],
    failures: Callable[[], AbstractContextManager[None]],
    request: pb.WatchRequest,
    *,
    timeout_s: float,
    reconnect_s: float,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield what happens in a range, the first event as soon as the watch stands.

    Args:
        connected: Returns the stub.
        failures: Raises what a gRPC call fails with as ours.
        timeout_s: How long the server may take until the watch stands.
        reconnect_s: How long to try to reach a server that went away.
    """
    loop = asyncio.get_running_loop()
    asked_rows = request.rows
    state: pb.Header | None = None
    lost_at: float | None = None
    pause_s = _PAUSES_S[0]
    while True:
        call = connected().Watch(request)
        try:
            with failures():
                async with asyncio.timeout(timeout_s):
                    header, rows = await _begin(call)
            if state is None:
                state = header
                yield WatchEvent(state.revision, [], rows if asked_rows else None)
            lost_at, pause_s = None, _PAUSES_S[0]
            while True:
                with failures():
                    reply = await _next(call)
                state = reply.header
                yield WatchEvent(state.revision, [_change(change) for change in reply.changes])
        except UnavailableError:
            if state is None:
                raise
            lost_at = lost_at or loop.time()
            if loop.time() - lost_at > reconnect_s:
                raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSES_S[1])
            request.rows = False
            request.after.CopyFrom(state)
        finally:
            call.cancel()


async def _begin(call: Any) -> tuple[pb.Header, Rows]:
    """Return the state at which a watch begins, and the rows that came before it stood."""
    rows = Rows([], [])
    while True:
        reply = await _next(call)
        rows.keys.extend(reply.keys)
        rows.values.extend(reply.values)
        if reply.ready:
            return reply.header, rows


async def _next(call: Any) -> pb.WatchReply:
    reply = await call.read()
    if not isinstance(reply, pb.WatchReply):
        raise UnavailableError("the target", "the server ended the watch")
    return reply


def _change(change: pb.Change) -> Change:
    old = change.old if change.HasField("old") else None
    return Change(change.key, old, change.new if change.HasField("new") else None)
