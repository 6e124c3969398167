"""One connection of a compute with a home: the feed's stream, what is said on it, and the loads beside it.

    compute  hello(since, ranges)  ->  ...  ->  released  ->  asked 7      every quarter of a second, or at once
    home     <- history, reloads, commits ....  position, age, answered 7

The age of an answer counts from the moment at which the question was sent: how long an answer was on its way, or lay in
a buffer of a process that was stopped, is not known otherwise. A home that answers nothing for a while is given up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import NEXT_GROUPS_MAX

from pequod.engine.transacting import TransactionLimits
from pequod.language.missing import NextGroups
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import BackingUnavailableError
from pequod_server.backing.store import (
    Added,
    Addition,
    ConditionalChange,
    KeyRange,
    Loaded,
    Place,
    RowChange,
    SequenceHorizon,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
)
from pequod_server.backing.timed import with_deadlines
from pequod_server.homes.compute.channel import PeerChannel
from pequod_server.homes.messages import (
    UNKNOWN_FEED,
    VERSION_MAX,
    VERSION_MIN,
    added_of,
    decided,
    firsts_of,
    groups_message,
    lasts_of,
    peer_transaction_request,
    place_of,
    write_if_request,
    write_request,
    written_transaction_of,
)
from pequod_server.wire.publishing import UNKNOWN_FATE

T = TypeVar("T")

#: How often a compute asks for position and age.
ASK_S: Final = 0.25
#: Ranges in one message.
_RANGES: Final = 10_000
_NUMBER_MAX: Final = (1 << 64) - 1
#: Numbers of a home's events, below those of the next connection.
STAMP_BITS: Final = 64


class SessionOverError(Exception):
    """The connection is over; what was asked on it has to be asked again on another one."""


class DatabasePlace(NamedTuple):
    """A place of a database: where a compute is."""

    database: bytes
    place: Place


class PeerSession:
    """A feed of one home.

    Args:
        epoch: Counts the connections of a store.
        silence_s: A home that says nothing for this long is given up.
        own_id: The compute's id in its cluster, for people at the home.

    Invariants:
        1. ``released_count`` is the number of messages with released ranges, those included that are still to be sent.
    """

    def __init__(
        self,
        channel: PeerChannel,
        address: str,
        epoch: int,
        clock: Callable[[], float],
        silence_s: float,
        own_id: str = "",
    ) -> None:
        self._id = own_id
        self.channel = channel
        self.address = address
        self.epoch = epoch
        #: Never 0, which stands for no feed.
        self.number = random.randint(1, _NUMBER_MAX)  # noqa: S311 - it only has to differ from those of others
        self._clock = clock
        self._silence_s = silence_s
        self._news = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_given_up = False
        self._released: list[KeyRange] = []
        self._released_sent = 0
        self._hurry = 0
        self._asked = 0
        #: When each question was sent.
        self._asked_s: dict[int, float] = {}

    # What the compute says.

    @property
    def released_count(self) -> int:
        """How many messages with released ranges come before a load that begins now."""
        return self._released_sent - -len(self._released) // _RANGES

    @property
    def asked(self) -> int:
        """The number of the last question that was sent; 0 before the first."""
        return self._asked

    def release(self, ranges: Sequence[KeyRange]) -> None:
        """Say that ranges were forgotten."""
        self._released += ranges
        self._news.set()

    def hurry(self, position: int) -> None:
        """Ask to be told when the home has come to a position."""
        self._hurry = max(self._hurry, position)
        self._news.set()

    async def _requests(
        self, since: DatabasePlace | None, ranges: Sequence[KeyRange]
    ) -> AsyncIterator[pb.PeerFeedRequest]:
        rest, is_first = iter(ranges), True
        while (some := list(islice(rest, _RANGES))) or is_first:
            hello = pb.PeerFeedHello(
                version_min=VERSION_MIN,
                version_max=VERSION_MAX,
                feed=self.number,
                firsts=firsts_of(some),
                lasts=lasts_of(some),
                more=len(some) == _RANGES,
                id=self._id,
            )
            if since is not None:
                hello.database = since.database
                hello.since.timeline, hello.since.position = since.place
            is_first = False
            yield pb.PeerFeedRequest(hello=hello)
            if not hello.more:
                break
        while not self._over.done():
            yield self._question()
            if self._released:
                continue
            try:
                async with asyncio.timeout(ASK_S):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()

    def _question(self) -> pb.PeerFeedRequest:
        self._asked += 1
        self._asked_s[self._asked] = self._clock()
        released, self._released = self._released[:_RANGES], self._released[_RANGES:]
        hurry, self._hurry = self._hurry, 0
        self._released_sent += bool(released)
        return pb.PeerFeedRequest(
            released_firsts=firsts_of(released),
            released_lasts=lasts_of(released),
            hurry=hurry,
            asked=self._asked,
        )

    # What the home says.

    async def replies(
        self, since: DatabasePlace | None, ranges: Sequence[KeyRange]
    ) -> AsyncGenerator[pb.PeerFeedReply, None]:
        """Begin the feed, and yield its messages until it ends.

        Raises:
            BackingUnavailableError: The connection broke, or the home is silent.
            PequodError: The home refuses.
        """
        async with aclosing(self.channel.feed(self._requests(since, ranges))) as replies:  # type: ignore[type-var]
            while True:
                try:
                    async with asyncio.timeout(self._silence_s):
                        reply = await anext(replies, None)
                except TimeoutError:
                    raise BackingUnavailableError(
                        f"the home {self.address}", f"it has not said anything for {self._silence_s:g} s"
                    ) from None
                if reply is None or self._is_given_up:
                    return
                yield reply

    def fresh_s(self, reply: pb.PeerFeedReply) -> float | None:
        """Return a moment such that everything that was committed before it was told; None if none is known."""
        if not reply.answered or not reply.HasField("age_ms"):
            return None
        asked_s = self._asked_s.get(reply.answered)
        for number in [number for number in self._asked_s if number < reply.answered]:
            del self._asked_s[number]
        return None if asked_s is None else asked_s - reply.age_ms / 1000

    # Calls beside the feed.

    async def load(self, ranges: Sequence[KeyRange], next_groups: Sequence[NextGroups]) -> Loaded:
        """Read ranges, which neither overlap nor touch, and perhaps the groups that their keys lead to."""
        request = pb.PeerLoadRequest(
            version_min=VERSION_MIN,
            version_max=VERSION_MAX,
            firsts=firsts_of(ranges),
            lasts=lasts_of(ranges),
            feed=self.number,
            released=self.released_count,
            # The compute asks for the rows of further groups in a second load.
            next=[groups_message(one) for one in next_groups[:NEXT_GROUPS_MAX]],
        )
        rows: list[tuple[bytes, bytes]] = []
        last: pb.PeerLoadReply | None = None
        async for reply in self.channel.load(request):
            rows += zip(reply.keys, with_deadlines(reply.values, reply.deadlines), strict=True)
            last = reply
        if last is None or not last.HasField("place"):
            raise BackingUnavailableError(f"the home {self.address}", "a load ended before its end")
        horizon = SequenceHorizon(last.place.position, (self.epoch << STAMP_BITS) + last.sequence)
        prefetched = tuple(map(KeyRange, last.more_firsts, last.more_lasts))
        return Loaded(tuple(rows), horizon, last.place.timeline, prefetched)

    async def position(self, *, latest: bool) -> Place:
        """Ask the home where its database is now, or for a proof that it commits."""
        return place_of((await self.channel.position(pb.PeerPositionRequest(latest=latest))).place)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Have the home write changes in one transaction."""
        reply = await self.once(self.channel.write(write_request(changes)))
        absent = frozenset(reply.absent)
        return WrittenThrough(place_of(reply.place), [number not in absent for number in range(len(changes))])

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Have the home write a change if its condition holds there."""
        return decided(await self.once(self.channel.write_if(write_if_request(change)), change.request_id))

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Have the home run a transaction."""
        request = peer_transaction_request(transaction, limits)
        return written_transaction_of(
            transaction, await self.once(self.channel.transact(request), transaction.request_id)
        )

    async def add(self, addition: Addition) -> Added:
        """Have the home add."""
        request = pb.PeerAddRequest(**addition._asdict())
        return added_of(await self.once(self.channel.add(request), addition.request_id))

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what a call on this connection returns.

        Raises:
            SessionOverError: The connection is over, before the call was.
        """
        task = asyncio.ensure_future(call)
        # All callers that wait for it may be gone when it fails.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            waited: set[asyncio.Future[Any]] = {task, self._over}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not self._over.done() and _is_unknown(task.exception()):
            # The home has ended the feed, which shows here in a moment.
            self.give_up()
            await asyncio.wait({self._over}, timeout=self._silence_s)
        if self._over.done():
            # Even if the call has its answer: it may belong to another state than the next connection begins with.
            raise SessionOverError
        return task.result()

    async def once(self, call: Coroutine[Any, Any, T], request_id: bytes = b"") -> T:
        """Return what a call returns that must not be made twice.

        Raises:
            BackingUnavailableError: The connection is over, before the call was.
            SessionOverError: The same, and the call has a request id: it may be made twice.
        """
        try:
            return await self.run(call)
        except SessionOverError:
            if request_id:
                raise
            reason = f"the connection broke; {UNKNOWN_FATE}"
            raise BackingUnavailableError(f"the home {self.address}", reason) from None

    def give_up(self) -> None:
        """Have the feed end at its next message, which comes within a moment."""
        self._is_given_up = True
        self._news.set()

    async def end(self) -> None:
        """End the connection, and the calls on it."""
        if not self._over.done():
            self._over.set_result(None)
        self._news.set()
        await self.channel.close()


def _is_unknown(error: BaseException | None) -> bool:
    return isinstance(error, BackingUnavailableError) and error.reason == UNKNOWN_FEED
