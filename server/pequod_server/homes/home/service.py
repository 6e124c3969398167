"""The servicer of `PequodPeer`: what a home answers to its computes; `homes.messages` says what they ask."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import add_PequodPeerServicer_to_server

from pequod.calls import PeerStatistics
from pequod.engine.transacting import refuse
from pequod.errors import BackingUnavailableError, BadRequestError, LimitExceededError, PequodError
from pequod.transaction_messages import transaction_of
from pequod_server.access.grants import Right
from pequod_server.access.guard import present_caller
from pequod_server.backing import Addition, KeyRange
from pequod_server.backing.rows import Clip
from pequod_server.backing.store import WrittenThrough
from pequod_server.backing.timed import deadlines_of
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.homes.home.answering import LoadStream
from pequod_server.homes.home.feeding import FeedCounters, PeerFeed
from pequod_server.homes.home.ids import IdCalls
from pequod_server.homes.home.loads import prefetch_of, read_ranges
from pequod_server.homes.home.origin import Origin
from pequod_server.homes.messages import (
    MESSAGE_BYTES,
    UNKNOWN_FEED,
    VERSION_MAX,
    changes_of,
    conditional_change_of,
    firsts_of,
    lasts_of,
    limits_of,
    peer_transaction_reply,
    place_message,
    ranges_of,
    write_if_reply,
)
from pequod_server.homes.rules import HomeRules
from pequod_server.memory.admission import COPIES, Admission
from pequod_server.wire.encode import PeersFollowing
from pequod_server.wire.errors import version_status
from pequod_server.wire.fitting import pieces, row_sizes
from pequod_server.wire.handlers import Context, Unregistered, end_call
from pequod_server.wire.publishing import HOME

log = logging.getLogger("pequod.peer")


def add_peer_service(service: PeerService, server: aio.Server) -> None:
    """Let a server answer the calls of its computes."""
    add_PequodPeerServicer_to_server(service, Unregistered(server))  # type: ignore[no-untyped-call]


class PeerService:
    """A home, as its computes see it.

    Args:
        rules: Which keys the map of the cluster gives to this home; None: it belongs to none.
        writes_max: Changes of one transaction.
        tell_time: Tells the engine what time it is, before a write: deadlines count from it.
    """

    def __init__(
        self,
        origin: Origin,
        admission: Admission,
        rules: HomeRules | None = None,
        *,
        writes_max: int,
        tell_time: Callable[[], None] = lambda: None,
    ) -> None:
        self._tell_time = tell_time
        self._writes_max = writes_max
        self._rules = rules
        self.origin = origin
        self._admission = admission
        #: By the numbers that computes chose.
        self.feeds: dict[int, PeerFeed] = {}
        #: Counts of loads, and of feeds that are gone.
        self.gone = FeedCounters()
        self._sweeping: asyncio.Task[None] | None = None
        self._load_streams: set[LoadStream] = set()
        #: Called after each load with its first key, that it was read, the seconds, and the number of ranges.
        self.on_load: Callable[[bytes, bool, float, int], None] = lambda *_: None
        self.Load = self._load
        self.Loads = self._loads
        self.Feed = self._feed
        self.Position = self._position
        self.Write = self._write
        self.WriteIf = self._write_if
        self.Transaction = self._transaction
        self.Add = self._add
        id_calls = IdCalls(origin, rules)
        self.Ids, self.TakeIds = id_calls.ids, id_calls.take_ids

    async def following(self) -> PeersFollowing:
        """Return who follows this home, for people; others have their turn meanwhile."""
        relay = self.origin.relay
        counts = await in_turns(relay.wants.counts_in_steps(), Turns())
        peers = [
            PeerStatistics(
                id=feed.id,
                address=feed.peer,
                lag_events=relay.lag(feed.subscriber),
                messages=feed.counters.messages,
                changes=feed.counters.changes,
                bytes=feed.counters.size_bytes,
                reloads=feed.counters.reloads,
                subscriptions=counts.get(feed.subscriber.bit, 0),
            )
            for feed in self.feeds.values()
        ]
        return PeersFollowing(peers, len(relay.wants) if peers else 0)

    def end(self) -> None:
        """End the feeds and the streams of loads: their computes go to another home."""
        for feed in list(self.feeds.values()):
            feed.close()
        for stream in self._load_streams:
            stream.close()

    def stop(self) -> None:
        """Ask the database nothing more."""
        self.end()
        self.origin.stop()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _load(self, request: pb.PeerLoadRequest, _context: Context) -> AsyncIterator[pb.PeerLoadReply]:
        """Read ranges as of one place, and subscribe a feed to them."""
        _refuse_version(request.version_min, request.version_max)
        async with aclosing(self._answer_load(request)) as replies:  # type: ignore[type-var]
            async for reply in replies:
                yield reply
                del reply

    async def _loads(self, _requests: object, context: Context) -> None:
        """Do the same for one request after another."""
        caller = present_caller()

        def accept(request: pb.PeerLoadRequest) -> None:
            _refuse_version(request.version_min, request.version_max)

        async def answer(request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
            if caller is not None:
                for one in ranges_of(request.firsts, request.lasts):
                    caller.role().need(Right.FEED, one.first, one.last)
            async with aclosing(self._answer_load(request)) as replies:  # type: ignore[type-var]
                async for reply in replies:
                    yield reply
                    del reply

        stream = LoadStream(context, accept, answer)
        self._load_streams.add(stream)
        try:
            await stream.run()
        finally:
            self._load_streams.discard(stream)

    async def _answer_load(self, request: pb.PeerLoadRequest) -> AsyncIterator[pb.PeerLoadReply]:
        ranges = Clip(ranges_of(request.firsts, request.lasts)).ranges
        if self._rules is not None:
            for one in ranges:
                self._rules.refuse_load(one.first, one.last)
        self.origin.wake()
        began_s = time.perf_counter()
        feed = None
        if request.feed:
            feed = self.feeds.get(request.feed)
            if feed is None:
                raise BackingUnavailableError(HOME, UNKNOWN_FEED)
            await feed.has_released(request.released)
        elif self.origin.needs_feed:
            raise BadRequestError(
                "this server has its base data from others, and gives them to feeds alone: ask a home"
            )
        next_of = prefetch_of(request, self._may_load)
        found = await read_ranges(self.origin, None if feed is None else feed.subscriber, ranges, next_of)
        self.gone.loads += 1
        self.gone.loaded_rows += len(found.keys)
        if ranges:
            self.on_load(ranges[0].first, False, time.perf_counter() - began_s, len(ranges))  # noqa: FBT003 - it read
        if feed is not None:
            feed.catch_up()
        start = 0
        for count, _ in pieces(row_sizes(found.keys, found.values), MESSAGE_BYTES) if found.keys else [(0, 0)]:
            stop = start + count
            values = found.values[start:stop]
            reply = pb.PeerLoadReply(keys=found.keys[start:stop], values=values, deadlines=deadlines_of(values))
            if stop == len(found.keys):
                reply.place.CopyFrom(place_message(found.place))
                reply.sequence = found.sequence
                reply.more_firsts.extend(firsts_of(found.prefetched))
                reply.more_lasts.extend(lasts_of(found.prefetched))
            async with self._admission.bytes(COPIES * reply.ByteSize()):
                yield reply
                del reply
            start = stop

    def _may_load(self, one: KeyRange) -> bool:
        """Return whether a compute may have rows of a range without asking for them by name."""
        caller = present_caller()
        try:
            if caller is not None:
                caller.role().need(Right.FEED, one.first, one.last)
            if self._rules is not None:
                self._rules.refuse_load(one.first, one.last)
            self.origin.prepare([one])
        except PequodError:
            return False
        # A compute asks by name for rows that the home computes: they have to be watched first.
        return self.origin.can_resume([one])

    async def _feed(
        self, requests: AsyncIterator[pb.PeerFeedRequest], context: Context
    ) -> AsyncIterator[pb.PeerFeedReply]:
        """Tell a compute what changes in the ranges that it holds."""
        hello, ranges = await _hello_of(requests)
        _refuse_version(hello.version_min, hello.version_max)
        if trouble := self.origin.trouble:
            raise BackingUnavailableError(HOME, trouble)
        caller = present_caller()
        role = None if caller is None else caller.role()
        if role is not None:
            for one in ranges:
                role.need(Right.FEED, one.first, one.last)
        if self._rules is not None:
            for one in ranges:
                self._rules.refuse_load(one.first, one.last)
        self.origin.wake()
        self.origin.prepare(ranges)
        feed = PeerFeed(self.origin, context.peer(), self._sweep, hello.id)
        if hello.feed in self.feeds:
            feed.close()
            raise BadRequestError("another feed has this number")
        self.feeds[hello.feed] = feed
        reading = asyncio.create_task(_read(feed, hello, ranges, requests), name="pequod peer feed")
        reading.add_done_callback(lambda _: feed.close())
        try:
            async for reply in feed.replies():
                if caller is not None and caller.role() is not role:
                    # The access file has changed.
                    role = caller.role()
                    for one in self.origin.relay.wants.ranges_of(feed.subscriber.bit):
                        role.need(Right.FEED, one.first, one.last)
                yield reply
                del reply
            if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
                raise error
        finally:
            reading.cancel()
            feed.close()
            del self.feeds[hello.feed]
            self.gone.add(feed.counters)
            self._sweep()

    async def _position(self, request: pb.PeerPositionRequest, _context: Context) -> pb.PeerPositionReply:
        """Return where the base data are now."""
        self.origin.wake()
        place = await self.origin.ask(latest=request.latest)
        return pb.PeerPositionReply(
            place=place_message(place),
            version_min=VERSION_MAX,
            version_max=VERSION_MAX,
            tables=self.origin.tables,
        )

    async def _write(self, request: pb.PeerWriteRequest, _context: Context) -> pb.PeerWriteReply:
        """Write changes, all or none."""
        if not len(request.keys) == len(request.values) == len(request.present):
            raise BadRequestError("each key needs a value and a byte in `present`")
        if not request.keys:
            raise BadRequestError("there is nothing to write")
        if len(request.keys) > self._writes_max:
            raise LimitExceededError("batch_commands_max", len(request.keys), self._writes_max)
        if request.deadlines and len(request.deadlines) != len(request.keys):
            raise BadRequestError("each key needs a deadline, or none has one")
        changes = changes_of(request.keys, request.values, request.present, request.deadlines)
        self._tell_time()
        if self._rules is None:
            if request.copies or request.rests:
                raise BadRequestError("nothing moves here: this server belongs to no cluster")
            written: WrittenThrough = await self.origin.write(changes)
        else:
            self._refuse_others(request, self._rules)
            async with self._rules.writing():
                written = await self.origin.write(changes)
        return pb.PeerWriteReply(
            place=place_message(written.place),
            absent=[number for number, was_there in enumerate(written.were_there) if not was_there],
        )

    @staticmethod
    def _refuse_others(request: pb.PeerWriteRequest, rules: HomeRules) -> None:
        """Pass if the keys of a write are those that its kind is for."""
        if request.copies:
            rules.refuse_copies(request.keys, request.move)
        elif not request.rests:
            rules.refuse(request.keys)
        elif any(request.present):
            raise BadRequestError("rests of a move are removed, and nothing else")
        else:
            rules.refuse_rests(request.keys)

    async def _write_if(self, request: pb.PeerWriteIfRequest, _context: Context) -> pb.PeerWriteIfReply:
        """Write a change if its condition holds."""
        change = conditional_change_of(request)
        async with self._let_in((change.key,)):
            return write_if_reply(await self.origin.write_if(change))

    async def _transaction(self, request: pb.PeerTransactionRequest, _context: Context) -> pb.PeerTransactionReply:
        """Run a transaction."""
        transaction = transaction_of(request.transaction)
        # As the computes' clients have it, whose servers have judged it.
        refuse(transaction, self._writes_max)
        if not transaction.decided_by():
            raise BadRequestError("there is nothing to decide")
        async with self._let_in(transaction.decided_by()):
            return peer_transaction_reply(transaction, await self.origin.transact(transaction, limits_of(request)))

    async def _add(self, request: pb.PeerAddRequest, _context: Context) -> pb.PeerAddReply:
        """Add to a value."""
        async with self._let_in((request.key,)):
            found = await self.origin.add(Addition(request.key, request.delta, request.request_id))
            return pb.PeerAddReply(place=place_message(found.place), value=found.total)

    @asynccontextmanager
    async def _let_in(self, keys: Sequence[bytes]) -> AsyncIterator[None]:
        """Let a write of keys go on, and hold up their move meanwhile; refuse it if this server is not their home."""
        if self._rules is not None:
            self._rules.refuse(keys)
        async with nullcontext() if self._rules is None else self._rules.writing():
            self._tell_time()
            yield

    def _sweep(self) -> None:
        """Clear the subscriptions of feeds that are gone, in the background."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep_in_turns(), name="pequod peer sweep")

    async def _sweep_in_turns(self) -> None:
        turns = Turns()
        for _ in self.origin.relay.sweep_in_steps():
            await turns.give_if_due()


async def _read(
    feed: PeerFeed, hello: pb.PeerFeedHello, ranges: Sequence[KeyRange], requests: AsyncIterator[pb.PeerFeedRequest]
) -> None:
    """Take what a compute says, until it ends its stream."""
    beginning = asyncio.create_task(feed.begin(hello, ranges), name="pequod peer feed begins")
    beginning.add_done_callback(lambda task: _close_if_failed(task, feed))
    try:
        async for request in requests:
            feed.take(request)
    finally:
        beginning.cancel()


def _close_if_failed(task: asyncio.Task[None], feed: PeerFeed) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("a feed cannot begin", extra={"peer": feed.peer, "reason": str(error)})
        feed.close()


async def _hello_of(requests: AsyncIterator[pb.PeerFeedRequest]) -> tuple[pb.PeerFeedHello, list[KeyRange]]:
    """Return the hello of a feed, and the ranges that it and its continuations name."""
    hello: pb.PeerFeedHello | None = None
    ranges: list[KeyRange] = []
    async for request in requests:
        if not request.HasField("hello"):
            break
        part = request.hello
        hello = hello or part
        ranges += ranges_of(part.firsts, part.lasts)
        if not part.more:
            return hello, ranges
    raise BadRequestError("a feed begins with a hello")


def _refuse_version(version_min: int, version_max: int) -> None:
    if not version_min <= VERSION_MAX <= version_max:
        end_call(version_status(VERSION_MAX, version_min, version_max))
