"""Servers that homes serve and that serve others: what is behind them is exact, whatever dies."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, ExitStack
from hashlib import sha256
from pathlib import Path

import pytest
from pequod_server.database.loader import Loader
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.compute.store import PequodStore

from pequod.errors import BackedKeyError, PermissionDeniedError, StaleError
from pequod.freshness import Latest, MaxAge, Token
from pequod.language.conditions import IF_ABSENT, Unmet
from tests.peer.homes import LATEST, MAPPING, TIMELINE, Running, computing, fake, on_sqlite, running, sqlite, until
from tests.peer.test_exactness import USERS, Past, checked_read, reads
from tests.peer.test_processes import serving, stopped
from tests.peer.test_wire import ACCESS, Plain, load, refusal


def store_of(compute: Running) -> PequodStore:
    assert isinstance(compute.store, PequodStore)
    return compute.store


def loader_of(compute: Running) -> Loader:
    loader = compute.server.loader
    assert loader is not None
    return loader


@pytest.mark.parametrize("seed", range(2))
async def test_answers_behind_relays_are_those_of_their_tokens_while_feeds_break(seed: int) -> None:
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running(store))
        first = await stack.enter_async_context(computing([home.address], peer_keep_bytes=20_000))
        second = await stack.enter_async_context(computing([first.address, home.address]))
        compute = await stack.enter_async_context(computing([second.address, first.address]))
        reader = asyncio.create_task(reads(compute, past, draw, 80))
        while not reader.done():
            past.commit_some(draw, draw.choice([1, 30]))
            if draw.random() < 0.1:
                draw.choice([home, first, second]).server.peers.end()
            if draw.random() < 0.2:
                draw.choice([first, second]).server.engine.evict(3)
            if draw.random() < 0.03:
                store.break_feed("the test says so", is_lost=draw.random() < 0.5)
            await past.pause(draw.choice([0, 0.001, 0.003]))
        await reader
        await until(lambda: loader_of(compute).status.state == "ok")
        for user in USERS:
            await checked_read(compute, past, user, LATEST)
        for one in (first, second, compute):
            store_of(one).held._check()


async def test_what_a_relay_has_evicted_is_told_on_and_what_nobody_wants_is_released() -> None:
    store = fake()
    past = Past(store)
    async with running(store) as home, computing([home.address]) as relay:
        wants = home.server.peers.origin.relay.wants
        async with computing([relay.address]) as compute:
            past.commit({b"s|ann|bob": b"1", b"p|bob|0001": b"Hi"})
            await checked_read(compute, past, "ann", LATEST)
            relay.server.engine.evict(100)
            assert relay.server.engine.loaded_range_count == 0
            # Past the turn in which the relay would tell its home.
            await until(lambda: not relay.server.engine.forgotten())
            past.commit({b"p|bob|0002": b"told on"})
            await checked_read(compute, past, "ann", LATEST)
            assert loader_of(compute).counters.flights <= 2, "the change came by the feed"
            assert relay.server.engine.loaded_range_count == 0
            assert any(wants.ranges_of(-1))
        # The compute has gone: the relay wants none of it any more.
        await until(lambda: not any(wants.ranges_of(-1)))


async def test_tokens_writes_and_refusals_are_those_of_the_home(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through"))
        relay = await stack.enter_async_context(computing([home.address]))
        compute = await stack.enter_async_context(computing([relay.address]))
        below = await stack.enter_async_context(computing([relay.address], backing_mode="write-around"))
        session = compute.client.session()
        await session.put("s|ann|bob", "1")
        await session.put("p|bob|0001", "Hi")
        (mark,) = session.token.positions
        for one in (home, relay, compute, below):
            assert Token.parse(loader_of(one).followed.token).positions.keys() == {mark}
            rows = await one.client.session(session.token, wait_s=50).scan(prefix="p|")
            assert rows == [(b"p|bob|0001", b"Hi")]
        assert await compute.client.put("p|bob|0001", "other", condition=IF_ABSENT) == Unmet(b"Hi")
        assert await compute.client.add("p|bob|0002", 3) == b"3"
        assert await relay.client.get("p|bob|0002", freshness=LATEST) == b"3"
        with pytest.raises(BackedKeyError):
            await below.client.put("p|bob|0003", "not here")


async def test_a_relay_that_dies_is_replaced_by_another_one_or_by_a_home() -> None:
    store = fake()
    past = Past(store)
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running(store))
        first = await stack.enter_async_context(computing([home.address]))
        second = await stack.enter_async_context(computing([home.address]))
        compute = await stack.enter_async_context(computing([first.address, second.address, home.address]))
        past.commit({b"s|ann|bob": b"1", b"s|liz|dan": b"1", b"p|bob|0001": b"Hi", b"p|dan|0001": b"Hello"})
        await until(lambda: second.server.peers.origin.relay.is_awake)
        await checked_read(second, past, "ann", LATEST)
        for user in ("ann", "liz"):
            await checked_read(compute, past, user, LATEST)
        flights = loader_of(compute).counters.flights
        await first.server.close()
        past.commit({b"p|bob|0002": b"meanwhile", b"p|dan|0002": b"meanwhile"})
        await checked_read(compute, past, "ann", LATEST)
        assert store_of(compute).home == second.address
        await second.server.close()
        past.commit({b"p|bob|0003": b"later"})
        for user in ("ann", "liz"):
            await checked_read(compute, past, user, LATEST)
        assert store_of(compute).home == home.address
        assert loader_of(compute).counters.flights >= flights


async def test_ranges_that_the_next_relay_has_had_are_not_read_again() -> None:
    store = fake()
    past = Past(store)
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running(store))
        relays = [await stack.enter_async_context(computing([home.address])) for _ in range(2)]
        compute = await stack.enter_async_context(computing([one.address for one in relays]))
        past.commit({b"s|ann|bob": b"1", b"s|liz|dan": b"1", b"p|bob|0001": b"Hi", b"p|dan|0001": b"Hello"})
        await until(lambda: relays[1].server.peers.origin.relay.is_awake)
        await checked_read(relays[1], past, "ann", LATEST)
        past.commit({b"p|bob|0002": b"after the second relay has it"})
        for user in ("ann", "liz"):
            await checked_read(compute, past, user, LATEST)
        ranges = loader_of(compute).counters.ranges
        await relays[0].server.close()
        past.commit({b"p|bob|0003": b"meanwhile", b"p|dan|0003": b"meanwhile"})
        await checked_read(compute, past, "ann", LATEST)
        assert loader_of(compute).counters.ranges == ranges, "the second relay knows all of it"
        await checked_read(compute, past, "liz", LATEST)
        assert loader_of(compute).counters.ranges > ranges, "of this it knew nothing"


async def test_servers_that_are_behind_each_other_go_back_to_the_home(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through"))
        one = await stack.enter_async_context(computing([home.address]))
        other = await stack.enter_async_context(computing([home.address, one.address]))
        for server, names in ((one, [home.address, other.address]), (other, [home.address, one.address])):
            store_of(server).move_to(names)
        await one.client.put("s|ann|bob", "1")
        for server in (one, other):
            assert await server.client.get("s|ann|bob", freshness=LATEST) == b"1"
        await home.server.close()
        # One of them may be behind the other meanwhile. Where both are, each is told so and goes on.
        await until(lambda: sum(loader_of(server).status.failure_count for server in (one, other)) >= 10)
        again = await stack.enter_async_context(
            running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through", listen=home.address)
        )
        await again.client.put("p|bob|0001", "back")
        for server in (one, other):
            assert len(await server.client.scan(prefix="t|ann|", freshness=LATEST)) == 1


async def test_a_server_behind_itself_is_told_so() -> None:
    async with running() as home, computing([home.address]) as relay:
        store_of(relay).move_to([relay.address])
        home.server.peers.end()
        await until(lambda: "it has its base data from this server" in loader_of(relay).status.error)
        store_of(relay).move_to([home.address])
        await home.client.put("p|bob|0001", "Hi")
        assert await relay.client.get("p|bob|0001", freshness=LATEST) == b"Hi"


async def test_a_load_without_a_feed_is_refused_by_a_relay() -> None:
    async with running() as home, computing([home.address]) as relay, Plain(relay) as plain:
        error = await refusal(plain.load(load((b"p|", b"p}"))))
        assert "gives them to feeds alone" in (error.details() or "")


async def test_rights_at_a_relay_are_those_at_a_home(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    token = f'[tokens.compute]\nrole = "compute"\nsha256 = "{sha256(b"compute").hexdigest()}"\n'
    access.write_text(ACCESS + token)
    async with running() as home, computing([home.address], access_file=access) as relay:
        store = PequodStore([relay.address], [b"p", b"s"], connect=PeerCredentials(token="compute").connect)
        async with running(store, backing_mode="write-through") as compute:
            await compute.client.put("p|bob|1", "a")
            assert await home.client.get("p|bob|1") == b"a"
            assert await compute.client.get("p|bob|1", freshness=LATEST) == b"a"
            with pytest.raises(PermissionDeniedError, match="feed"):
                await compute.client.get("p|cat|1")
            access.write_text((ACCESS + token).replace('"p|bob|"', '"p|cat|"'))
            relay.server.reload()
            await until(lambda: loader_of(compute).counters.reloads == 1)
            assert await compute.client.get("p|cat|1", freshness=LATEST) is None
            with pytest.raises(PermissionDeniedError):
                await compute.client.get("p|bob|1")


# Processes.


async def test_relays_that_are_killed_and_stopped_only_make_what_is_behind_them_late(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    (tmp_path / "mapping.toml").write_text(MAPPING)
    database = f"sqlite:{tmp_path / 'posts.db'}"
    options = ["--backing", database, "--backing-mapping", str(tmp_path / "mapping.toml")]
    through = ["--backing-tables", "p,s", "--backing-mode", "write-through"]
    with ExitStack() as stack:
        homes = [stack.enter_context(serving(*options, "--backing-mode", "write-through")) for _ in range(2)]
        names = ",".join(home.address for home in homes)
        relays = [stack.enter_context(serving("--backing", f"pequod://{names}", *through)) for _ in range(2)]
        names = ",".join(relay.address for relay in relays)
        compute = stack.enter_context(serving("--backing", f"pequod://{names}", *through, "--joins", TIMELINE))
        async with compute.client() as client, homes[1].client() as writer:
            session = client.session()
            await session.put("s|ann|bob", "1")
            for at in range(40):
                if at == 10:
                    relays[0].process.kill()
                if at == 20:
                    homes[0].process.kill()
                # The compute hears of it by a home, a relay and its own feed.
                token = session.token if at in (10, 20) else None
                if token is None:
                    await session.put(f"p|bob|{at:04d}", "post")
                else:
                    own = writer.session(token, wait_s=20)
                    await own.put(f"p|bob|{at:04d}", "post")
                    session = client.session(own.token, wait_s=20)
                seen = await client.session(session.token, wait_s=20).scan(prefix="t|ann|")
                assert len(seen) == at + 1
            with stopped(relays[1]):
                await writer.put("p|bob|0040", "post")
                assert len(await client.scan(prefix="t|ann|")) == 40
                # What the compute knows is older from then on.
                await asyncio.sleep(0.2)
                with pytest.raises(StaleError):
                    await client.scan(prefix="t|ann|", freshness=MaxAge(0.1, wait_s=0.3))
            assert len(await client.scan(prefix="t|ann|", freshness=Latest(wait_s=20))) == 41
