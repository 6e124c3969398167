"""Whatever is put, loaded, evicted and broken: every answer is the evaluation of the joins at its token."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest
from pequod_server.backing import FakeStore

from pequod.freshness import Freshness, Token
from tests.engine.earlier import live_before
from tests.peer.homes import LATEST, OWNED, TIMELINE, Running, computing, expected, fake, running, until

USERS = ["ann", "bob", "cat", "dan"]


#: Commits beside one read after which they are far apart: on a busy machine they would be thousands.
UNREAD_MANY = 20


class Past:
    """The rows of the database at each position."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.at: dict[int, Mapping[bytes, bytes]] = {0: {}}
        #: Commits since a read has ended.
        self.unread = 0

    def commit(self, rows: dict[bytes, bytes | None]) -> int:
        self.unread += 1
        position = self._store.commit(rows)
        self.at[position] = dict(self._store.rows)
        return position

    def commit_some(self, draw: random.Random, most: int) -> None:
        rows: dict[bytes, bytes | None] = {}
        for _ in range(draw.randint(1, most)):
            one, other = draw.choice(USERS), draw.choice(USERS)
            key = f"s|{one}|{other}" if draw.random() < 0.3 else f"p|{one}|{draw.randrange(60):04d}"
            rows[key.encode()] = None if draw.random() < 0.3 else b"v%d" % draw.randrange(1000)
        self.commit(rows)

    async def pause(self, seconds: float) -> None:
        """Wait before the next commit, longer if the reads are far behind."""
        await asyncio.sleep(seconds if self.unread < UNREAD_MANY else 0.02)


async def checked_read(compute: Running, past: Past, user: str, freshness: Freshness | None) -> None:
    """Read a timeline, and compare it with the evaluation at the token of the reply."""
    session = compute.client.session()
    if freshness is None:
        rows = await session.scan(prefix=f"t|{user}|")
    else:
        rows = await session.scan(prefix=f"t|{user}|", freshness=freshness)
    past.unread = 0
    ((_, position),) = session.token.positions.items()
    assert rows == expected(past.at[position].items(), user.encode()), f"{user} at {position}"


async def reads(compute: Running, past: Past, draw: random.Random, count: int) -> None:
    seen = Token({})
    for _ in range(count):
        level = LATEST if draw.random() < 0.2 else None
        await checked_read(compute, past, draw.choice(USERS), level)
        token = compute.server.service.levels.token
        assert Token.parse(token).merged(seen) == Token.parse(token), "positions never go back"
        seen = Token.parse(token)
        if draw.random() < 0.3:
            compute.server.engine.evict(draw.randint(1, 5))
        if draw.random() < 0.2:
            assert compute.server.loader is not None
            compute.server.loader.flights.release()
        await asyncio.sleep(draw.choice([0, 0, 0.001]))


@pytest.mark.parametrize("seed", range(4))
async def test_answers_of_two_computes_are_those_of_their_tokens(seed: int) -> None:
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with (
        running(store) as home,
        computing([home.address], joins="") as one,
        computing([home.address], joins="") as other,
    ):
        for compute in (one, other):
            live_before(draw, compute.server.engine, OWNED)
            await compute.client.add_join(TIMELINE)
        readers = [asyncio.create_task(reads(compute, past, draw, 60)) for compute in (one, other)]
        while not all(reader.done() for reader in readers):
            past.commit_some(draw, draw.choice([1, 3, 20]))
            if draw.random() < 0.05:
                home.server.engine.evict(3)
            await past.pause(draw.choice([0, 0.001, 0.005]))
        await asyncio.gather(*readers)
        for compute in (one, other):
            for user in USERS:
                await checked_read(compute, past, user, LATEST)


async def test_a_compute_that_has_forgotten_everything_is_told_nothing_more() -> None:
    store = fake()
    async with running(store) as home, computing([home.address]) as compute:
        store.commit({b"s|ann|bob": b"1", b"p|bob|0001": b"Hi"})
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 1
        (feed,) = home.server.peers.feeds.values()
        wants = home.server.peers.origin.relay.wants
        assert list(wants.ranges_of(feed.subscriber.bit))
        loader = compute.server.loader
        assert loader is not None
        compute.server.engine.forget(b"", None)
        loader.flights.release()
        before = loader.counters.changes
        await until(lambda: not list(wants.ranges_of(feed.subscriber.bit)))
        store.commit({b"p|bob|0002": b"unseen"})
        await compute.client.get("p|zed|0001", freshness=LATEST)
        assert loader.counters.changes == before
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 2
        store.commit({b"p|bob|0003": b"seen"})
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 3
