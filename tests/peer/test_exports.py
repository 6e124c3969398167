"""Exported joins: what a home computes is base data at computes, exact at the token of each answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from pequod_server.backing.health import Backoff
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.home.origin import DatabaseOrigin

from pequod.errors import PequodError, SettingError
from pequod.freshness import Token
from tests.peer.homes import LATEST, TIMELINE, Running, expected, fake, on_sqlite, running, sqlite, until
from tests.peer.test_exactness import USERS, Past

#: Rows that one source gives, and rows whose sources come and go with another source.
EXPORTED = f"{TIMELINE}; posts_of|<poster> = count p|<poster>|<time:4>"
KARMA = "lines_of|<user> = count t|<user>|<time:4>|<poster>; karma|<poster> = sum posts_of|<poster>"


def exporting(store: Any, **settings: Any) -> AbstractAsyncContextManager[Running]:
    return running(store, joins=EXPORTED, peer_exports="t, posts_of", **settings)


def computing(*homes: str) -> AbstractAsyncContextManager[Running]:
    store = PequodStore(homes, [b"p", b"t", b"posts_of"], silence_s=2.0, backoff=Backoff(first_s=0.01, most_s=0.1))
    return running(store, joins=KARMA, backing_mode="write-through")


async def checked_read(compute: Running, past: Past, draw: random.Random) -> None:
    """Read rows of each kind, and compare them with the evaluation at the token of the reply."""
    session, user, kind = compute.client.session(), draw.choice(USERS), draw.randrange(3)
    level: dict[str, Any] = {"freshness": LATEST} if draw.random() < 0.2 else {}
    if kind == 0:
        rows = list(await session.scan(prefix=f"t|{user}|", **level))
    else:
        count = await session.get(f"lines_of|{user}" if kind == 1 else f"karma|{user}", **level)
    past.unread = 0
    ((_, position),) = session.token.positions.items()
    past_rows = past.at[position]
    timeline = expected(past_rows.items(), user.encode())
    posts = sum(key.startswith(f"p|{user}|".encode()) for key in past_rows)
    match kind:
        case 0:
            assert rows == timeline, f"{user} at {position}"
        case 1:
            assert int(count or 0) == len(timeline), f"{user} at {position}"
        case _:
            assert int(count or 0) == posts, f"{user} at {position}"


@pytest.mark.parametrize("seed", range(4))
async def test_answers_from_exported_rows_are_those_of_their_tokens(seed: int) -> None:
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with exporting(store) as home, computing(home.address) as one, computing(home.address) as other:

        async def reads(compute: Running) -> None:
            for _ in range(60):
                await checked_read(compute, past, draw)
                if draw.random() < 0.3:
                    compute.server.engine.evict(draw.randint(1, 5))
                if draw.random() < 0.2:
                    assert compute.server.loader is not None
                    compute.server.loader.flights.release()
                await asyncio.sleep(draw.choice([0, 0, 0.001]))

        readers = [asyncio.create_task(reads(compute)) for compute in (one, other)]
        while not all(reader.done() for reader in readers):
            past.commit_some(draw, draw.choice([1, 3, 20]))
            if draw.random() < 0.2:
                home.server.engine.evict(draw.randint(1, 6))
            if draw.random() < 0.03:
                store.break_feed("restarted", is_lost=draw.random() < 0.5)
            await past.pause(draw.choice([0, 0.001, 0.005]))
        await asyncio.gather(*readers)


async def test_a_put_at_the_home_comes_to_reads_and_watches_of_a_compute_as_one_row(tmp_path: Path) -> None:
    await sqlite(tmp_path / "db")
    async with (
        exporting(on_sqlite(tmp_path / "db"), backing_mode="write-through") as home,
        computing(home.address) as compute,
    ):
        for number in range(300):
            await home.client.put(f"p|bob|{number:04}", "Hi")
        assert await compute.client.get("karma|bob", freshness=LATEST) == b"300"
        # The posts themselves are not there.
        assert b"p" not in compute.server.engine.statistics().tables
        watch = compute.client.watch("karma|", "karma}")
        await anext(watch)
        await home.client.put("p|bob|0300", "Hi")
        await compute.client.put("p|bob|0301", "by the compute")
        seen: list[bytes | None] = [None]
        while seen[-1] != b"302":
            seen += [change.new for change in (await anext(watch)).changes]
        await watch.aclose()
        with pytest.raises(PequodError):
            await compute.client.put("posts_of|bob", "7")


async def test_a_compute_goes_on_at_another_home_with_what_that_one_computes(tmp_path: Path) -> None:
    await sqlite(tmp_path / "db")
    async with exporting(on_sqlite(tmp_path / "db"), backing_mode="write-through") as second:
        async with exporting(on_sqlite(tmp_path / "db"), backing_mode="write-through") as first:
            compute_context = computing(first.address, second.address)
            compute = await compute_context.__aenter__()
            await second.client.put("p|bob|0001", "Hi")
            assert await compute.client.get("karma|bob", freshness=LATEST) == b"1"
            before = Token.parse(compute.server.service.levels.token)
        await second.client.put("p|bob|0002", "Hi")
        assert await compute.client.get("karma|bob", freshness=LATEST) == b"2"
        after = Token.parse(compute.server.service.levels.token)
        assert after.merged(before) == after
        await second.client.put("p|bob|0003", "Hi")
        assert await compute.client.get("karma|bob", freshness=LATEST) == b"3"
        await compute_context.__aexit__(None, None, None)


async def test_a_home_forgets_the_exported_ranges_that_no_compute_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.homes.home.exports._UNWANTED_MAX", 2)
    store = fake()
    async with exporting(store) as home, computing(home.address) as compute:
        exports = home.server.peers.origin._exports  # type: ignore[union-attr]
        for number in range(20):
            assert await compute.client.get(f"karma|u{number}", freshness=LATEST) is None
            compute.server.engine.forget(b"", None)
            assert compute.server.loader is not None
            compute.server.loader.flights.release()
            (feed,) = home.server.peers.feeds.values()
            wants, bit = home.server.peers.origin.relay.wants, feed.subscriber.bit
            await until(lambda: not list(wants.ranges_of(bit)))  # noqa: B023 - it is called before the next turn
        assert len(exports._watches) < 8


async def test_a_compute_that_reconnects_reads_exported_ranges_again() -> None:
    """Nobody was told of them while no compute held them: the home does not go on where it was."""
    store = fake()
    async with exporting(store) as home, computing(home.address) as compute:
        store.commit({b"p|bob|0001": b"Hi"})
        assert await compute.client.get("karma|bob", freshness=LATEST) == b"1"
        origin, loader = home.server.peers.origin, compute.server.loader
        assert isinstance(origin, DatabaseOrigin)
        assert loader is not None
        followed: Any = loader.store
        epoch, exports = followed._epoch, origin._exports
        assert exports._watches
        home.server.peers.end()
        exports._tidy()
        store.commit({b"p|bob|0002": b"Hi"})
        await until(lambda: followed._epoch > epoch and followed._session)
        assert await compute.client.get("karma|bob", freshness=LATEST) == b"2"


async def test_what_cannot_be_exported_is_said() -> None:
    with pytest.raises(SettingError, match="beside one database"):
        async with running(None, peer_exports="t"):
            pass
    with pytest.raises(SettingError, match="the database's"):
        async with running(fake(), peer_exports="p"):
            pass
    joins = "a|<x> = count elsewhere|<x>|<y>; b|<user> = pull count p|<user>|<time:4>"
    async with running(fake(), joins=joins, peer_exports="a, b, c") as home:
        store = PequodStore([home.address], [b"a", b"b", b"c"])
        async with running(store) as compute:
            for key, reason in (("a|1", "elsewhere"), ("b|1", "watched"), ("c|1", "neither computed")):
                with pytest.raises(PequodError, match=reason):
                    await compute.client.get(key)
        store = PequodStore([home.address], [b"d"])
        with pytest.raises(PequodError, match="does not own the table d"):
            async with running(store):
                pass
