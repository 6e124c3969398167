"""Where one watch's changes end and the next's begin."""

from __future__ import annotations

import asyncio

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.calls.feeds import Feeds

from pequod.engine import Change, Engine
from pequod.errors import WatchCompactedError


async def test_a_new_watch_cuts_the_changes_of_the_others() -> None:
    engine = Engine()
    watches = Feeds(engine, ServerConfig())
    one = watches.open((b"a|", b"a}"))
    engine.put(b"a|1", b"x")
    other = watches.open((b"b|", b"b}"))
    engine.put(b"a|1", b"y")
    await asyncio.sleep(0)
    batches = [one.take(), one.take(), one.take()]
    assert [batch and (batch.revision, list(batch.changes)) for batch in batches] == [
        (other.floor, [Change(b"a|1", None, b"x")]),
        (engine.revision, [Change(b"a|1", b"x", b"y")]),
        None,
    ]
    one.close()
    other.close()


async def test_a_watch_goes_on_after_a_revision_that_another_one_told_between_two_changes() -> None:
    engine, bounds = Engine(), (b"a|", b"a}")
    watches = Feeds(engine, ServerConfig())
    quick = watches.open(bounds)
    engine.put(b"a|1", b"x")
    quick.settle()
    told = quick.take()
    assert told is not None
    slow = watches.open(bounds)
    engine.put(b"a|1", b"y")
    quick.settle()
    between = engine.revision
    # The slow one tells of both changes at once.
    engine.put(b"a|2", b"z")
    await asyncio.sleep(0)
    for feed in (slow, quick):
        watches.detach(feed)
    again = watches.reopen(bounds, between)
    batch = again.take()
    assert batch is not None
    assert list(batch.changes) == [Change(b"a|2", None, b"z")]
    assert again.take() is None
    watches.forget(quick)
    with pytest.raises(WatchCompactedError, match="not kept any more"):
        watches.reopen(bounds, between)
    watches.close()


async def test_progress_is_told_where_nothing_happens(server: PequodServer, stub: object) -> None:
    call = stub.Watch(pb.WatchRequest(first=b"a|", last=b"a}", progress_ms=1))  # type: ignore[attr-defined]
    async with asyncio.timeout(20):
        assert (await call.read()).ready
        server.engine.put(b"b|1", b"x")
        revision = server.engine.revision
        while (reply := await call.read()).header.revision < revision:
            assert not reply.changes
        assert not reply.changes
        server.engine.put(b"a|1", b"x")
        while not (reply := await call.read()).changes:
            assert reply.header.revision == revision
        assert reply.header.revision == revision + 1
    call.cancel()


async def test_nothing_is_told_behind_changes_that_were_too_many() -> None:
    engine = Engine()
    watches = Feeds(engine, ServerConfig(watch_changes_max=10))
    feed = watches.open((b"a|", b"a}"))
    engine.put(b"a|0", b"before")
    await asyncio.sleep(0)
    for number in range(11):
        engine.put(b"a|%d" % number, b"together")
    await asyncio.sleep(0)
    engine.put(b"a|0", b"later")
    await asyncio.sleep(0)
    batch = feed.take()
    assert batch is not None
    assert list(batch.changes) == [Change(b"a|0", None, b"before")]
    assert feed.take() is None
    assert "watch_changes_max" in str(feed.ended)
    feed.close()
    assert engine.ledger.watch_bytes == 0
