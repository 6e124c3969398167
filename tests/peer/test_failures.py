"""What computes do when homes die, fall silent, fall behind, or keep less than is needed."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pequod_server.backing import turns
from pequod_server.homes.home import loads

from tests.peer.homes import LATEST, computing, expected, fake, on_sqlite, running, sqlite, until
from tests.peer.test_exactness import USERS, Past, checked_read, reads


@pytest.mark.parametrize("seed", range(2))
async def test_loads_in_many_slices_are_of_one_place_while_rows_change(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "WORK_MAX", 1)
    monkeypatch.setattr(loads, "_PIECE_ROWS", 20)
    draw, store = random.Random(seed), fake()
    past = Past(store)
    past.commit({f"p|{user}|{at:04d}".encode(): b"first" for user in USERS for at in range(200)})
    past.commit({b"s|ann|%b" % user.encode(): b"1" for user in USERS})
    async with running(store) as home, computing([home.address]) as compute:
        reading = asyncio.create_task(checked_read(compute, past, "ann", None))
        while not reading.done():
            past.commit_some(draw, 5)
            await asyncio.sleep(0)
        await reading
        assert len(past.at) > 10
        await checked_read(compute, past, "ann", LATEST)


async def test_a_home_that_dies_is_replaced_and_its_compute_forgets_nothing(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    first = await AsyncExitStack().enter_async_context(
        running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through")
    )
    second_stack = AsyncExitStack()
    second = await second_stack.enter_async_context(
        running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through")
    )
    async with second_stack, computing([first.address, second.address]) as compute:
        await second.client.put("s|ann|bob", "1")
        await second.client.put("p|bob|0001", "Hi")
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 1
        await until(lambda: second.server.peers.origin.relay.is_awake)
        await first.server.close()
        await second.client.put("p|bob|0002", "meanwhile")
        rows = await compute.client.scan(prefix="t|ann|", freshness=LATEST)
        assert rows == [(b"t|ann|0001|bob", b"Hi"), (b"t|ann|0002|bob", b"meanwhile")]
        assert compute.server.loader is not None
        assert compute.server.loader.counters.reloads == 0, "the second home had all changes"
        assert compute.server.loader.counters.flights <= 3


async def test_a_home_without_a_database_that_is_started_anew_has_nothing() -> None:
    async with AsyncExitStack() as stack:
        home = await stack.enter_async_context(running())
        compute = await stack.enter_async_context(computing([home.address]))
        await home.client.put("s|ann|bob", "1")
        await home.client.put("p|bob|0001", "Hi")
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 1
        await home.server.close()
        again = await stack.enter_async_context(running(listen=home.address))
        assert await compute.client.scan(prefix="t|ann|", freshness=LATEST) == []
        await again.client.put("s|ann|bob", "1")
        await again.client.put("p|bob|0002", "new")
        assert await compute.client.scan(prefix="t|ann|", freshness=LATEST) == [(b"t|ann|0002|bob", b"new")]


@pytest.mark.parametrize("seed", range(2))
async def test_answers_are_those_of_their_tokens_while_feeds_break_and_rings_are_short(seed: int) -> None:
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with running(store, peer_keep_bytes=4096) as home, computing([home.address]) as compute:
        reader = asyncio.create_task(reads(compute, past, draw, 80))
        while not reader.done():
            past.commit_some(draw, draw.choice([1, 30]))
            if draw.random() < 0.1:
                home.server.peers.end()
            if draw.random() < 0.05:
                store.break_feed("the test says so", is_lost=draw.random() < 0.5)
            await past.pause(draw.choice([0, 0.001, 0.003]))
        await reader
        loader = compute.server.loader
        assert loader is not None
        await until(lambda: loader.status.state == "ok")
        for user in USERS:
            await checked_read(compute, past, user, LATEST)


async def test_a_commit_of_28000_rows_becomes_visible_as_a_whole() -> None:
    store = fake()
    past = Past(store)
    async with running(store) as home, computing([home.address], rows_max=50_000) as compute:
        past.commit({b"s|ann|bob": b"1"})
        await checked_read(compute, past, "ann", LATEST)
        large: dict[bytes, bytes | None] = {b"p|bob|%04d" % at: b"x" * 100 for at in range(7000)}
        large |= {b"p|dan|%04d" % at: b"x" * 100 for at in range(7000)}
        large |= {b"p|eve|%04d" % at: b"x" * 100 for at in range(7000)}
        large |= {b"p|cat|%04d" % at: b"x" * 100 for at in range(7000)}
        past.commit(large)
        for at in range(20):
            await checked_read(compute, past, "ann", None)
            past.commit({b"p|bob|%04d" % at: b"later"})
        await checked_read(compute, past, "ann", LATEST)
        past.commit(dict.fromkeys(large, b"y" * 100))
        assert compute.server.loader is not None
        while compute.server.loader.position != max(past.at):
            await checked_read(compute, past, "ann", None)
        await checked_read(compute, past, "ann", LATEST)


@pytest.mark.parametrize("seed", range(3))
async def test_commits_that_are_told_in_parts_are_seen_as_a_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.homes.home.relay.LOOKED_AT", 3)
    monkeypatch.setattr("pequod_server.homes.home.feeding.MESSAGE_BYTES", [20, 60, 1 << 19][seed])
    monkeypatch.setattr("pequod_server.backing.turns.SLICE_S", [0.0, 0.0, 0.003][seed])
    monkeypatch.setattr("pequod_server.backing.turns.WORK_MAX", [1, 1, 4096][seed])
    draw, store = random.Random(seed), fake()
    past = Past(store)
    async with running(store) as home, computing([home.address]) as one, computing([home.address]) as other:
        readers = [asyncio.create_task(reads(compute, past, draw, 60)) for compute in (one, other)]
        # On a busy machine feeds may lag ever more, or end sooner than they come anywhere: nothing is the latest then.
        loaders, ends = [loader for compute in (one, other) if (loader := compute.server.loader) is not None], 30
        while not all(reader.done() for reader in readers):
            if max(past.at) - min(loader.position or 0 for loader in loaders) < 50:
                past.commit_some(draw, draw.choice([1, 8, 30]))
                if ends and draw.random() < 0.05:
                    home.server.peers.end()
                    ends -= 1
            await past.pause(draw.choice([0, 0.001, 0.005]))
        await asyncio.gather(*readers)


async def test_a_commit_that_the_ring_cannot_hold_is_loaded_instead() -> None:
    store = fake()
    past = Past(store)
    async with running(store, peer_keep_bytes=100_000) as home, computing([home.address]) as compute:
        past.commit({b"s|ann|bob": b"1", b"p|bob|0000": b"a"})
        await checked_read(compute, past, "ann", LATEST)
        past.commit({b"p|bob|%04d" % at: b"x" * 100 for at in range(5000)})
        await checked_read(compute, past, "ann", LATEST)
        assert home.server.peers.origin.relay.overrun_count == 1
        assert home.server.peers.origin.relay.size_bytes <= 100_000
        assert expected(store.rows.items(), b"ann")


@pytest.mark.parametrize(("memory_limit", "keep_bytes"), [("none", 1 << 30), ("4GiB", 1 << 29), ("16GiB", 1 << 30)])
async def test_kept_changes_leave_memory_to_rows(memory_limit: str, keep_bytes: int) -> None:
    async with running(fake(), memory_limit=memory_limit, peer_keep_bytes=1 << 30) as home:
        assert home.server.peers.origin.relay._keep_bytes == keep_bytes
