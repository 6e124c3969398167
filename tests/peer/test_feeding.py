"""A home's messages: how large they are, and that a large commit comes as a whole, in as many of them as it needs."""

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import Changes, KeyRange, RowChange
from pequod_server.homes.compute.events import PeerEvents
from pequod_server.homes.home.feeding import PeerFeed
from pequod_server.homes.home.own_origin import MemoryOrigin
from pequod_server.homes.home.relay import Relay
from pequod_server.homes.messages import MESSAGE_BYTES

from pequod.engine import Engine

POSTS = KeyRange(b"p|", b"p}")


@pytest.mark.parametrize("count", [100, 10_000], ids=["looked up at once", "looked up in parts"])
async def test_a_large_commit_is_told_in_messages_of_a_bounded_size(count: int) -> None:
    relay = Relay(1 << 30)
    origin = MemoryOrigin(Engine(), 1, relay)
    feed = PeerFeed(origin, "a compute", lambda: None)
    origin.wake()
    origin.prepare([POSTS])
    await feed.begin(pb.PeerFeedHello(feed=1), [POSTS])
    replies = feed.replies()
    events = PeerEvents(0, lambda: (POSTS,), None)
    list(events.of(await anext(replies)))
    commit = [RowChange(b"p|bob|%010d" % number, b"v" * (40_000_000 // count)) for number in range(count)]
    relay.add(1, commit)
    told: list[Changes] = []
    while not told:
        reply = await anext(replies)
        # But for the last change, without which a message could hold nothing.
        assert sum(map(len, reply.keys[:-1])) + sum(map(len, reply.values[:-1])) <= MESSAGE_BYTES
        told += [event for event in events.of(reply) if isinstance(event, Changes)]
    assert [event.changes for event in told] == [tuple(commit)]
    feed.close()
