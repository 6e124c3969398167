"""Micro benchmarks of what a cluster adds: both ends of the feed between servers.

A feed's row is a commit of 16 changes, as a database tells it, to one compute that wants them all; the bytes that a
message takes on the wire are made, and parsed, but there is no gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Final

from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import KeyRange, RowChange
from pequod_server.homes.compute.events import PeerEvents
from pequod_server.homes.home.feeding import PeerFeed
from pequod_server.homes.home.own_origin import MemoryOrigin
from pequod_server.homes.home.relay import Relay
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_workloads import twip as keys

from pequod.client.columns import Columns
from pequod.engine import Engine, RangeRows
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock

CLUSTER: Final = MicroRows()
_POSTERS: Final = 1_000
_TWEET: Final = b"v" * 66
#: Changes of a commit, and commits of a sample.
_COMMIT: Final = 16
_COMMITS: Final = 16
#: As the server has them applied.
_WORK_MAX: Final = 4096
#: Ranges that are loaded together.
_TOGETHER: Final = 20
_EVERYTHING: Final = KeyRange(b"p|", b"p}")


def _commits() -> Iterator[list[RowChange]]:
    """Yield commits as a store's feed tells them, each of other keys."""
    for number in count():
        yield [RowChange(keys.post_key(at * 37 % _POSTERS, number), _TWEET) for at in range(_COMMIT)]


class _Home:
    """A home whose only compute wants all posts."""

    def __init__(self) -> None:
        self.relay = Relay(1 << 20)
        self.origin = MemoryOrigin(Engine(), 1, self.relay)
        self.feed = PeerFeed(self.origin, "micro", lambda: None)
        self._replies = self.feed.replies()

    async def start(self, ranges: list[KeyRange]) -> pb.PeerFeedReply:
        self.origin.wake()
        self.origin.prepare(ranges)
        await self.feed.begin(pb.PeerFeedHello(version_min=1, version_max=1, feed=1), ranges)
        return await self.next()

    async def next(self) -> pb.PeerFeedReply:
        return await anext(self._replies)


@CLUSTER.row("feed: tell", "a change at a home, in commits of 16")
def tell(_scale: MicroScale) -> Samples:
    """Keep commits for a feed, and make the messages that tell them."""
    home, commits, number = _Home(), _commits(), 0
    with asyncio.Runner() as runner:
        runner.run(home.start([KeyRange(*keys.posts_of(poster)) for poster in range(_POSTERS)]))
        while True:
            some = [next(commits) for _ in range(_COMMITS)]
            begun = clock()
            for commit in some:
                number += 1
                home.relay.add(number, commit)
            reply = runner.get_loop().run_until_complete(home.next())
            reply.SerializeToString()
            spent = clock() - begun
            assert len(reply.keys) == _COMMITS * _COMMIT
            yield _COMMITS * _COMMIT, spent


@CLUSTER.row("feed: hear", "a change at a compute, in commits of 16")
def hear(_scale: MicroScale) -> Samples:
    """Parse messages of a feed, and make the events of the store from them."""
    home, commits, number = _Home(), _commits(), 0
    with asyncio.Runner() as runner:
        first = runner.run(home.start([_EVERYTHING]))
        events = PeerEvents(0, lambda: (_EVERYTHING,), None)
        list(events.of(first))
        while True:
            for _ in range(_COMMITS):
                number += 1
                home.relay.add(number, next(commits))
            data = runner.get_loop().run_until_complete(home.next()).SerializeToString()
            begun = clock()
            for _ in events.of(pb.PeerFeedReply.FromString(data)):
                pass
            yield _COMMITS * _COMMIT, clock() - begun


def _loaded(users: int) -> Engine:
    """Return an engine behind which a database is, with the timelines of users who follow themselves."""
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(keys.PUSH_JOIN))
    for user in range(users):
        engine.load(b"s|%08d|" % user, b"s|%08d}" % user, [(keys.subscription_key(user, user), b"1")])
        engine.load(*keys.posts_of(user), [])
        # The second read finds the timeline by the end of its range.
        for _ in range(2):
            engine.scan(*keys.timeline(user))
    return engine


@CLUSTER.row("feed: apply", "a change of a loaded key, in one timeline")
def apply(scale: MicroScale) -> Samples:
    """Apply changes of a database to loaded posts, each of which is in one timeline."""
    engine, changes = _loaded(scale.of(_POSTERS)), _commits()
    while True:
        some = [next(changes) for _ in range(_COMMITS)]
        begun = clock()
        for commit in some:
            at = 0
            while at < len(commit):
                at, _ = engine.apply_some(commit, at, _WORK_MAX)
        yield _COMMITS * _COMMIT, clock() - begun


@CLUSTER.row("feed: foresee", "a subscription of a timeline that was read")
def foresee(scale: MicroScale) -> Samples:
    """Find what timelines will need of a poster whom each of their users follows now, and whom nobody followed."""
    for _, _, spent, users in _followed(scale.of(_POSTERS)):
        yield users, spent


@CLUSTER.row("feed: check after subscribe", "a check in a message of 1,000, the posts are loaded")
def check_followed(scale: MicroScale) -> Samples:
    """Check after the same, in messages, once the poster's one post is loaded."""
    for engine, poster, _, users in _followed(scale.of(_POSTERS)):
        executor = Executor(engine, 1, commands_max=1 << 20, reply_bytes_max=1 << 26, rows_max=1 << 20)
        engine.load(*keys.posts_of(poster), [(keys.post_key(poster, poster), _TWEET)])
        columns = Columns()
        for user in range(users):
            columns.scan(*keys.timeline(user, poster))
        message = columns.message(1).SerializeToString()
        begun = clock()
        found = run_quick(executor, message)
        spent = clock() - begun
        assert found is not None
        assert len(found.keys) == users, "all of it ran natively"
        yield users, spent


def _followed(users: int) -> Iterator[tuple[Engine, int, int, int]]:
    """Have all users follow another poster again and again; yield what it took to foresee what that needs."""
    engine = _loaded(users)
    for poster in count(users):
        changes = [(keys.subscription_key(user, poster), b"1") for user in range(users)]
        at = 0
        while at < len(changes):
            at, _ = engine.apply_some(changes, at, _WORK_MAX)
        names = [key for key, _ in changes]
        begun = clock()
        found = engine.foresee(names)
        spent = clock() - begun
        assert len(found) == 1
        yield engine, poster, spent, users
        # Nobody reads at the end of some samples; logs must not grow for ever.
        engine.load(*keys.posts_of(poster), [])
        for user in range(users):
            engine.scan(*keys.timeline(user, poster))


@CLUSTER.row("feed: load", "a range of two rows, twenty at a time")
def load_small(_scale: MicroScale) -> Samples:
    """Load the posts of posters whom nobody has read, two each, twenty posters at a time."""
    engine = _loaded(1)
    for first in count(1, _TOGETHER):
        posters = range(first, first + _TOGETHER)
        loads = [
            RangeRows(*keys.posts_of(poster), [(keys.post_key(poster, time), _TWEET) for time in (1, 2)])
            for poster in posters
        ]
        begun = clock()
        engine.load_all(loads)
        yield _TOGETHER, clock() - begun
        engine.forget(loads[0].first, loads[-1].last)
