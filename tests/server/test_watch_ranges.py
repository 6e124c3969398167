"""Watches of many ranges: one stream, one state; a range that cannot go on ends alone, and goes on in any company."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from pequod_server import ServerConfig
from pequod_server.calls.feeds import Feeds, RangeStart

from pequod import AsyncClient
from pequod.answers.changes import Change, Expired
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.engine import Engine
from pequod.errors import BadRequestError, LimitExceededError
from tests.server.serving import serving

CONFIG = ServerConfig(listen="127.0.0.1:0", drain_s=0.5)
A, B, BOTH = (b"a|", b"a}"), (b"b|", b"b}"), (b"a|5", b"b|5")


async def upto(events: AsyncGenerator[RangesEvent], revision: int) -> list[RangesEvent]:
    """Return events until one shows a revision."""
    found = []
    async with asyncio.timeout(20):
        async for event in events:
            found.append(event)
            if event.revision >= revision:
                break
    return found


def joined(events: list[RangesEvent]) -> dict[int, list[Change]]:
    changes: dict[int, list[Change]] = {}
    for event in events:
        for number, some in event.changes.items():
            changes.setdefault(number, []).extend(some)
    return changes


async def test_ranges_begin_with_their_rows_and_go_on_at_one_state() -> None:
    async with serving(CONFIG) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.multi_put({"a|1": "x", "a|7": "y", "b|1": "z"})
        ranges = [WatchedRange(*A, rows=True), WatchedRange(*B), WatchedRange(*BOTH, rows=True)]
        async with aclosing(client.watch_ranges(ranges, progress_s=0.01)) as events:
            begin = await anext(events)
            rows = {number: (found.keys, found.values) for number, found in begin.rows.items()}
            assert rows == {0: ([b"a|1", b"a|7"], [b"x", b"y"]), 2: ([b"a|7", b"b|1"], [b"y", b"z"])}
            assert begin.origins
            # Of one moment, at which ranges that overlap tell the same.
            await client.multi_put({"a|1": "", "a|7": "u", "b|1": "v"})
            await client.remove("a|7")
            await client.put("elsewhere", "x")
            found = await upto(events, client.revision)
            assert joined(found) == {
                0: [Change(b"a|1", b"x", b""), Change(b"a|7", b"y", b"u"), Change(b"a|7", b"u", None)],
                1: [Change(b"b|1", b"z", b"v")],
                2: [Change(b"a|7", b"y", b"u"), Change(b"b|1", b"z", b"v"), Change(b"a|7", b"u", None)],
            }
            assert found[-1].revision == client.revision
            assert found[-1].server_id == client.server_id
            await client.put("a|9", "z", ttl_s=0.01)
            while not (expired := joined([await anext(events)]).get(0)) or expired[-1].new is not None:
                pass
            assert isinstance(expired[-1], Expired)


async def test_a_range_that_cannot_be_followed_ends_alone() -> None:
    joins = "pulled|<a> = pull count a|<a>|<b>; pushed|<a> = count a|<a>|<b>"
    async with serving(CONFIG) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        pulled, pushed = await client.add_join(joins)
        ranges = [WatchedRange(*A), WatchedRange(b"pulled|", b"pulled}")]
        ranges.append(WatchedRange(b"pushed|", b"pushed}", rows=True))
        async with aclosing(client.watch_ranges(ranges, progress_s=0.01)) as events:
            begin = await anext(events)
            assert list(begin.ended) == [1]
            assert pulled.name in begin.ended[1]
            await client.put("a|x|1", "")
            assert joined(await upto(events, client.revision)).keys() == {0, 2}
            await client.drop_join(pushed.name)
            event = await anext(events)
            while not event.ended:
                event = await anext(events)
            assert list(event.ended) == [2]
            await client.put("a|x|2", "")
            assert joined(await upto(events, client.revision)) == {0: [Change(b"a|x|2", None, b"")]}


async def test_a_range_goes_on_in_other_company() -> None:
    """Each range has its changes since its own revision, whatever feeds had kept them."""
    engine = Engine()
    engine.put(b"a|0", b"before")
    feeds = Feeds(engine, ServerConfig())
    one = feeds.open_ranges([RangeStart(A, None), RangeStart(B, None)])
    other = feeds.open_ranges([RangeStart(BOTH, None)])
    began = engine.revision
    engine.put(b"a|1", b"1")
    await asyncio.sleep(0)
    middle = engine.revision
    engine.put(b"a|7", b"2")
    engine.put(b"b|1", b"3")
    engine.put(b"a|1", b"4")
    await asyncio.sleep(0)
    for feed in (one, other):
        while feed.take() is not None:
            pass
    feeds.detach(other)
    last = engine.revision
    starts = [RangeStart(BOTH, began), RangeStart(A, middle), RangeStart(B, last), RangeStart(B, None)]
    feed = feeds.open_ranges([*starts, RangeStart(A, 0), RangeStart((b"c|", b"c}"), middle)])
    batch = feed.take()
    assert batch is not None
    assert batch.revision == engine.revision
    assert dict(batch.runs()) == {
        0: [Change(b"a|7", None, b"2"), Change(b"b|1", None, b"3")],
        1: [Change(b"a|7", None, b"2"), Change(b"a|1", b"1", b"4")],
    }
    assert sorted(feed.lost) == [4, 5], "they have no feed, or none that goes back so far"
    assert len(feeds) == len(one.ranges) + len(feed.ranges), "the feed whose ranges all go on elsewhere is closed"
    # It may break before it was taken: then the ranges go on from where they began here.
    feeds.detach(feed)
    again = feeds.open_ranges(starts[:2])
    found = again.take()
    assert found is not None
    assert dict(found.runs()) == dict(batch.runs())
    feeds.close()
    for left in (one, again):
        feeds.forget(left)


async def test_the_halves_of_a_range_go_on_after_the_whole() -> None:
    engine = Engine()
    feeds = Feeds(engine, ServerConfig())
    one = feeds.open_ranges([RangeStart(A, None), RangeStart(BOTH, None), RangeStart(B, None)])
    began = engine.revision
    for key in (b"a|1", b"a|5", b"b|1"):
        engine.put(key, b"")
    await asyncio.sleep(0)
    starts = [
        RangeStart(bounds, began) for bounds in ((b"a|", b"a|5"), (b"a|5", b"b|"), (b"a|2", b"a|3"), (b"a", b"c"))
    ]
    feed = feeds.open_ranges(starts)
    batch = feed.take()
    assert batch is not None
    assert dict(batch.runs()) == {0: [Change(b"a|1", None, b"")], 1: [Change(b"a|5", None, b"")]}
    assert sorted(feed.lost) == [3], "it is wider than the others"
    engine.put(b"a|5", b"again")
    await asyncio.sleep(0)
    batch = feed.take()
    assert batch is not None
    assert dict(batch.runs()) == {1: [Change(b"a|5", b"", b"again")]}
    feeds.close()
    for left in (one, feed):
        feeds.forget(left)


async def test_the_ranges_of_a_watch_count_as_watches() -> None:
    config = ServerConfig(listen="127.0.0.1:0", watches_max=3, drain_s=0.5)
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(BadRequestError, match="name one at least"):
            await anext(client.watch_ranges([]))
        with pytest.raises(BadRequestError, match="empty range"):
            await anext(client.watch_ranges([WatchedRange(b"b", b"a")]))
        async with aclosing(client.watch_ranges([WatchedRange(*A), WatchedRange(*B)])) as events:
            await anext(events)
            with pytest.raises(LimitExceededError, match="watches_max"):
                await anext(client.watch_ranges([WatchedRange(*A), WatchedRange(*B)]))
            async with aclosing(client.watch_ranges([WatchedRange(*BOTH)])) as others:
                await anext(others)
