"""The home's side of a compute's feed: the ranges of the compute, its next message, and its questions.

    compute  hello(since, ranges) ---->  subscribe in slices, come to `since`, resume or reload
             released, hurry, asked -->  noted
    home     <----  reloads | commits    as the ring has them for this compute
             <----  position, age        once nothing is left to tell, for each question

A message is built when the stream takes it, so what waits is in the ring alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod_server.backing import History, KeyRange, Place, RowChange
from pequod_server.backing.turns import Turns
from pequod_server.database.followed import Reached
from pequod_server.homes.home.origin import Origin
from pequod_server.homes.home.relay import Entry, Subscriber
from pequod_server.homes.messages import (
    MESSAGE_BYTES,
    VERSION_MAX,
    ChangeColumns,
    firsts_of,
    history_message,
    lasts_of,
    place_of,
    ranges_of,
)
from pequod_server.wire.fitting import fitting

_EVERYTHING: Final = KeyRange(b"", None)
#: Ranges of one reload in a message.
_RANGES: Final = 10_000


@dataclass(slots=True)
class FeedCounters:
    """Counts of one feed, or of all; loads have no feed of their own."""

    messages: int = 0
    changes: int = 0
    size_bytes: int = 0
    reloads: int = 0
    loads: int = 0
    loaded_rows: int = 0

    def add(self, other: FeedCounters) -> None:
        """Add the counts of a feed."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class _Columns:
    """The commits of one message, as columns."""

    __slots__ = ("counts", "deadlines", "keys", "positions", "present", "sequences", "shown", "size", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        #: Empty while no key expires.
        self.deadlines: list[int] = []
        self.present = bytearray()
        self.counts: list[int] = []
        self.positions: list[int] = []
        self.shown: list[int] = []
        self.sequences: list[int] = []
        self.size = 0

    def add(self, changes: Sequence[RowChange], told: Entry) -> int:
        """Add changes of an event, or more of them; return how many fit, one at least."""
        columns = told.columns if changes is told.changes else ChangeColumns.of(changes)
        if self.size + columns.size_bytes > MESSAGE_BYTES:
            sizes = (len(key) + len(value) for key, value in zip(columns.keys, columns.values, strict=True))
            columns = ChangeColumns.of(changes[: fitting(sizes, MESSAGE_BYTES - self.size)[0]])
        count = len(columns.keys)
        if columns.deadlines or self.deadlines:
            self.deadlines += [0] * (len(self.keys) - len(self.deadlines))
            self.deadlines += columns.deadlines or [0] * count
        self.keys += columns.keys
        self.values += columns.values
        self.present += columns.present
        self.size += columns.size_bytes
        if self.holds(told):
            self.counts[-1] += count
            return count
        self.counts.append(count)
        self.positions.append(told.position)
        self.sequences.append(told.sequence)
        if told.shown is not None:
            self.shown.append(told.shown)
        return count

    def holds(self, told: Entry) -> bool:
        """Return whether the message has a part of an event."""
        return self.sequences[-1:] == [told.sequence]

    def write(self, reply: pb.PeerFeedReply, *, is_partial: bool) -> None:
        """Write the columns into a message."""
        reply.keys.extend(self.keys)
        reply.values.extend(self.values)
        reply.present = bytes(self.present)
        reply.deadlines.extend(self.deadlines)
        reply.counts.extend(self.counts)
        reply.positions.extend(self.positions)
        reply.shown.extend(self.shown)
        reply.sequences.extend(self.sequences)
        reply.partial = is_partial


class PeerFeed:
    """One compute's feed.

    Args:
        peer: Who is at the other end, for people.
        sweep: Has the subscriptions of feeds that are gone cleared.
        own_id: The id of the compute in its cluster, for people; empty outside of one.

    Invariants:
        1. The feed has told every change in the subscribed ranges, but those that are due to its subscriber.
    """

    def __init__(self, origin: Origin, peer: str, sweep: Callable[[], None], own_id: str = "") -> None:
        self._origin = origin
        self._sweep = sweep
        self._relay = origin.relay
        self.peer = peer
        self.id = own_id
        self.counters = FeedCounters()
        self._news = asyncio.Event()
        self.subscriber: Subscriber = self._relay.subscribe(self._news.set)
        #: The number of messages with released ranges that have come; loads wait for the event.
        self._released = 0
        self._moved = asyncio.Event()
        self._asked = 0
        self._is_asked = False
        self._hurry = 0
        self._hurrying: asyncio.Task[None] | None = None
        self._history: History | None = None
        #: Changes of the event that is due that are still to be told, if it has been told in part.
        self._rest: Sequence[RowChange] | None = None
        #: Where to look for more changes of the event that is due; 0: at its beginning.
        self._at = 0
        #: Whether a part of the event that is due is in messages before the next one.
        self._has_begun = False
        #: The last position that was told.
        self._told = -1
        #: The ranges that the compute has to read again before it goes on after ``_since``.
        self._unknown: list[KeyRange] = []
        self._since = 0
        #: The servers through which the changes come, as the compute knows them.
        self._relays: tuple[int, ...] = ()
        self._is_closed = False
        self._is_live = False

    # What the compute says.

    async def begin(self, hello: pb.PeerFeedHello, ranges: Sequence[KeyRange]) -> None:
        """Subscribe to what the compute holds, and find the place from which to go on."""
        turns = Turns()
        for one in ranges:
            self._relay.want(self.subscriber, one.first, one.last)
            if turns.are_due():
                await turns.give()
        origin, history = self._origin, self._origin.history
        if not hello.HasField("since"):
            self.subscriber.told, self.subscriber.due = self._relay.sequence, None
        elif hello.database != history.database:
            self._relay.lose(self.subscriber, "the base data are of another database, or of another life of the home")
        else:
            since = place_of(hello.since)
            # A home that is behind would take the compute back in time.
            await origin.come_to(since)
            origin.settle()
            if origin.reached(since) is Reached.LOST:
                self._relay.lose(self.subscriber, "the database has failed over")
            else:
                self._resume(ranges, await origin.unknown_since(ranges, since), since)
        self._is_live = True
        self._is_asked = True
        self._news.set()

    def _resume(self, ranges: Sequence[KeyRange], unknown: list[KeyRange] | None, since: Place) -> None:
        """Go on after a place, with those ranges read again of which changes since are unknown; None: all."""
        if unknown is None or (unknown and len(unknown) == len(ranges)):
            self._relay.lose(self.subscriber, "the changes since of what is held are not all known here")
        elif not self._relay.resume(self.subscriber, since):
            self._relay.lose(self.subscriber, "the home does not have the changes since")
        else:
            self._unknown, self._since = unknown, since.position
            for one in unknown:
                self._relay.release(self.subscriber, one.first, one.last)

    def take(self, request: pb.PeerFeedRequest) -> None:
        """Take a message of the compute, other than its hello."""
        if released := ranges_of(request.released_firsts, request.released_lasts):
            for one in released:
                self._relay.release(self.subscriber, one.first, one.last)
            self._released += 1
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        if request.hurry:
            self._hurry = max(self._hurry, request.hurry)
            if self._hurrying is None or self._hurrying.done():
                self._hurrying = asyncio.create_task(self._come_to_hurry(), name="pequod peer hurry")
        if request.asked:
            self._asked = max(self._asked, request.asked)
            self.tell_soon()
            if self._origin.trouble:
                # Another server may have homes that answer.
                self.close()

    async def _come_to_hurry(self) -> None:
        while self._told < self._hurry and not self._is_closed:
            hurry = self._hurry
            await self._origin.come_to(Place(self._origin.history.timeline, hurry))
            self.tell_soon()
            if hurry == self._hurry:
                return

    async def has_released(self, count: int) -> None:
        """Wait until as many messages with released ranges have come."""
        while self._released < count and not self._is_closed:
            await self._moved.wait()

    def tell_soon(self) -> None:
        """Tell position and age, once there is nothing else to tell."""
        self._is_asked = True
        self._news.set()

    def catch_up(self) -> None:
        """Tell the position if the last one told is behind what a load sees."""
        if self._told < self._origin.shown_position:
            self.tell_soon()

    def close(self) -> None:
        """End the feed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._news.set()
        self._moved.set()
        self._relay.leave(self.subscriber)
        if self._hurrying is not None:
            self._hurrying.cancel()

    # What it is told.

    async def replies(self) -> AsyncIterator[pb.PeerFeedReply]:
        """Yield messages until the feed is closed."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._is_live and not self._is_closed:
                reply = self._next()
                if reply is None and self._is_amid:
                    await asyncio.sleep(0)
                    continue
                if reply is None:
                    break
                self.counters.messages += 1
                yield reply
            if self._is_closed:
                return

    def _next(self) -> pb.PeerFeedReply | None:
        """Return the next message, None if there is nothing to say."""
        self._origin.settle()
        subscriber, reply = self.subscriber, pb.PeerFeedReply()
        if subscriber.lost:
            subscriber.lost, reason, self._rest = "", subscriber.lost, None
            self._at, self._has_begun, self._unknown = 0, False, []
            self._sweep()
            self._tell_reload(reply, [_EVERYTHING], reason, self._origin.position)
            return self._with_history(reply)
        if some := self._unknown[:_RANGES]:
            del self._unknown[:_RANGES]
            self._tell_reload(reply, some, "its changes since were not told here", self._since)
            return self._with_history(reply)
        columns, turns = _Columns(), Turns()
        while columns.size < MESSAGE_BYTES:
            told = self._relay.next_for(subscriber)
            if told is None:
                break
            if told.reloads:
                if not columns.counts:
                    self._relay.pass_by(subscriber)
                    self._tell_reload(reply, told.reloads, told.reason, told.position)
                    return self._with_history(reply)
                break
            self._tell(columns, told)
            if self._at and turns.are_due():
                break
        if columns.counts:
            is_partial = self._is_amid and columns.sequences[-1] == subscriber.due
            self._has_begun = self._has_begun or is_partial
            columns.write(reply, is_partial=is_partial)
            self.counters.changes += len(columns.keys)
            self.counters.size_bytes += columns.size
        if subscriber.due is None and (reply.counts or self._is_asked):
            self._is_asked = False
            self._tell_position(reply)
        elif not reply.counts:
            return None
        return self._with_history(reply)

    @property
    def _is_amid(self) -> bool:
        """Whether the event that is due is told in part, or looked through in part."""
        return self._at > 0 or self._rest is not None

    def _with_history(self, reply: pb.PeerFeedReply) -> pb.PeerFeedReply:
        history = self._origin.history
        if history != self._history:
            self._history = history
            reply.version = VERSION_MAX
            reply.history.CopyFrom(history_message(history))
        if self._origin.relays != self._relays:
            self._relays = self._origin.relays
            reply.relays.extend(self._relays)
        return reply

    def _tell_reload(self, reply: pb.PeerFeedReply, ranges: Sequence[KeyRange], reason: str, position: int) -> None:
        self.counters.reloads += 1
        reply.reload_firsts.extend(firsts_of(ranges))
        reply.reload_lasts.extend(lasts_of(ranges))
        reply.reload_reason = reason
        reply.position = self._told = position

    def _tell(self, columns: _Columns, told: Entry) -> None:
        """Add the changes of an event, or as many as fit, to those that are told next."""
        changes, self._rest = self._rest, None
        if changes is None:
            changes, self._at = self._relay.wanted(told, self.subscriber, self._at)
        if changes:
            count = columns.add(changes, told)
            if count < len(changes):
                self._rest = changes[count:]
                return
        if self._at:
            return
        if self._has_begun and not columns.holds(told):
            # Nothing more is wanted of it: this says that its end has come.
            columns.add((), told)
        if columns.holds(told):
            self._told = told.position
        self._has_begun = False
        self._relay.pass_by(self.subscriber)

    def _tell_position(self, reply: pb.PeerFeedReply) -> None:
        reply.position = self._told = self._origin.position
        reply.answered = self._asked
        age_ms = self._origin.age_ms
        if age_ms is not None:
            reply.age_ms = age_ms
