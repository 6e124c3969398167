"""A watch of many ranges, as one stream: its events are of one state of all of them.

WatchRanges --> rows of ranges that ask for them, ready, changes, changes ...       until the connection breaks
ended: ranges that cannot go on, while the others do
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.answers.changes import Change, Expired
from pequod.answers.rows import Rows
from pequod.calls import to_age_s, token_of_reply
from pequod.client.decode import age_ms_of
from pequod.client.tracing import caller_trace
from pequod.client.watch import Watched
from pequod.errors import UnavailableError
from pequod.freshness import NO_TOKEN, Token

#: A change that has both values; see `kinds` in a WatchRangesReply.
_BOTH: Final = 3


@dataclass(frozen=True, slots=True)
class WatchedRange:
    """One of many ranges: ``[first, last)``, and where its watch begins."""

    first: bytes
    last: bytes | None
    #: Whether the first event has its rows.
    rows: bool = False
    #: The id of a server and its revision after which it goes on; None: the present one.
    after: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RangesEvent:
    """The changes of many ranges up to a revision; ranges are named by their numbers in the call."""

    #: With this event's changes, all ranges are as of this revision of the server.
    revision: int
    server_id: int
    #: The state that the event shows, and how old it was at most; None if that is not known.
    token: Token = NO_TOKEN
    age_s: float | None = None
    #: In the order in which they happened in their range.
    changes: dict[int, list[Change]] = field(default_factory=dict)
    #: In the first event only: the rows of ranges that have asked for them.
    rows: dict[int, Rows] = field(default_factory=dict)
    #: The ranges that end here, and why; they can begin again with rows.
    ended: dict[int, str] = field(default_factory=dict)
    #: In the first event only; see `WatchEvent.origins`.
    origins: tuple[bytes, ...] = ()

    @property
    def change_count(self) -> int:
        """The number of changes."""
        return sum(map(len, self.changes.values()))


async def follow_ranges(
    connection: Watched,
    ranges: Sequence[WatchedRange],
    progress_ms: int,
    note: Callable[[pb.Header], None],
) -> AsyncGenerator[RangesEvent, None]:
    """Yield the events of ranges, the first as soon as the watch is established, until the connection breaks.

    Args:
        note: Notes the state that an event shows.
    """
    request = pb.WatchRangesRequest(ranges=map(_asked, ranges), progress_ms=progress_ms)
    call = connection.stub().WatchRanges(request, metadata=caller_trace())
    try:
        with connection.failures():
            async with asyncio.timeout(connection.timeout_s):
                event, header = await _begin(call)
        note(header)
        yield event
        # It may have many rows, and the watch may take long.
        del event
        while True:
            with connection.failures():
                reply = await _next(call)
            note(reply.header)
            yield _event(reply, dict(_changes(reply)))
    finally:
        call.cancel()


def _asked(one: WatchedRange) -> pb.WatchedRange:
    after = None if one.after is None else pb.Header(server_id=one.after[0], revision=one.after[1])
    return pb.WatchedRange(first=one.first, last=one.last, rows=one.rows, after=after)


async def _begin(call: Any) -> tuple[RangesEvent, pb.Header]:
    """Return the first event, with the rows that came before it, and the state that it shows."""
    rows: dict[int, Rows] = {}
    while True:
        reply = await _next(call)
        if reply.ready:
            return _event(reply, {}, rows), reply.header
        keys, values = iter(reply.keys), iter(reply.values)
        for number, count in zip(reply.ranges, reply.counts, strict=True):
            found = rows.setdefault(number, Rows([], []))
            found.keys.extend(islice(keys, count))
            found.values.extend(islice(values, count))


def _event(
    reply: pb.WatchRangesReply, changes: dict[int, list[Change]], rows: dict[int, Rows] | None = None
) -> RangesEvent:
    state = reply.header
    return RangesEvent(
        state.revision,
        state.server_id,
        token_of_reply(state.token),
        to_age_s(age_ms_of(state)),
        changes,
        rows or {},
        dict(zip(reply.ended, reply.reasons, strict=True)),
        tuple(reply.origins),
    )


def _changes(reply: pb.WatchRangesReply) -> Iterator[tuple[int, list[Change]]]:
    """Yield the changes of each range."""
    changes = map(_change, reply.keys, reply.olds, reply.values, reply.kinds)
    for number, count in zip(reply.ranges, reply.counts, strict=True):
        yield number, list(islice(changes, count))


def _change(key: bytes, old: bytes, new: bytes, kind: int) -> Change:
    if kind == _BOTH:
        return Change(key, old, new)
    made = Expired if kind & 4 else Change
    return made(key, old if kind & 1 else None, new if kind & 2 else None)


async def _next(call: Any) -> pb.WatchRangesReply:
    reply = await call.read()
    if not isinstance(reply, pb.WatchRangesReply):
        raise UnavailableError("the target", "the server ended the watch")
    return reply
