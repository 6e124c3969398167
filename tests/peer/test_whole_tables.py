"""Whole tables: the first read of a small table brings all of it, in one subscription."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.peer.homes import LATEST, computing, expected, fake, rows_of, running
from tests.peer.test_exactness import Past, reads


async def test_later_reads_of_the_table_load_nothing() -> None:
    store = fake()
    async with running(store) as home, computing([home.address], backing_whole_tables="s") as compute:
        rows = {f"s|u{number:03}|bob".encode(): b"1" for number in range(50)} | {b"p|bob|0001": b"Hi"}
        store.commit(dict(rows))
        loader = compute.server.loader
        assert loader is not None
        assert await rows_of(compute, "t|u007|", freshness=LATEST) == expected(rows.items(), b"u007")
        assert (loader.counters.ranges, loader.counters.rows) == (2, 51)
        answers = await asyncio.gather(*(rows_of(compute, f"t|u{number:03}|") for number in range(50)))
        assert all(len(rows) == 1 for rows in answers)
        assert (loader.counters.ranges, loader.counters.rows) == (2, 51)
        relay = home.server.peers.origin.relay
        (feed,) = home.server.peers.feeds.values()
        held = [(one.first, one.last) for one in relay.wants.ranges_of(feed.subscriber.bit)]
        assert held == [(b"p|bob|", b"p|bob}"), (b"s|", b"s}")]
        # A new key of the table comes by the feed.
        store.commit({b"s|new|bob": b"1"})
        assert len(await rows_of(compute, "t|new|", freshness=LATEST)) == 1
        assert loader.counters.ranges == 2
        # What is forgotten of it is loaded again, all at once.
        for number in (3, 9):
            compute.server.engine.forget(b"s|u%03d|" % number, b"s|u%03d}" % number)
        assert len(await rows_of(compute, "t|u003|", freshness=LATEST)) == 1
        assert (loader.counters.flights, loader.counters.ranges) == (2, 4)


@pytest.mark.parametrize("seed", range(2))
async def test_answers_are_those_of_their_tokens(seed: int) -> None:
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with running(store) as home, computing([home.address], backing_whole_tables="s,p") as compute:
        reader = asyncio.create_task(reads(compute, past, draw, 60))
        while not reader.done():
            past.commit_some(draw, draw.choice([1, 3, 20]))
            await past.pause(draw.choice([0, 0.001, 0.005]))
        await reader
