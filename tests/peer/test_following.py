"""A compute answers as a server beside the home's data would, and hears of every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peer.homes import LATEST, computing, expected, fake, on_sqlite, rows_of, running, sqlite


async def test_a_compute_shows_what_was_put_at_a_home_without_a_database() -> None:
    async with running() as home, computing([home.address]) as compute:
        await home.client.put("s|ann|bob", "1")
        await home.client.put("p|bob|0100", "Hi")
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == [(b"t|ann|0100|bob", b"Hi")]
        await home.client.put("p|bob|0120", "again")
        await home.client.remove("p|bob|0100")
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == [(b"t|ann|0120|bob", b"again")]


async def test_a_put_at_a_compute_is_written_at_the_home_and_read_at_both() -> None:
    async with running() as home, computing([home.address]) as compute, computing([home.address]) as other:
        assert await rows_of(other, "t|ann|") == []
        await compute.client.put("s|ann|bob", "1")
        await compute.client.put("p|bob|0100", "Hi")
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"Hi")]
        assert await home.client.get("p|bob|0100") == b"Hi"
        assert await rows_of(other, "t|ann|", freshness=LATEST) == [(b"t|ann|0100|bob", b"Hi")]
        assert await compute.client.remove("p|bob|0100")
        assert await rows_of(other, "t|ann|", freshness=LATEST) == []


async def test_a_session_moves_from_a_home_to_a_compute_and_reads_its_writes(tmp_path: Path) -> None:
    await sqlite(tmp_path / "posts.db")
    store = on_sqlite(tmp_path / "posts.db")
    async with running(store, backing_mode="write-through") as home, computing([home.address]) as compute:
        assert await rows_of(compute, "t|ann|") == []
        session = home.client.session()
        await session.put("s|ann|bob", "1")
        await session.put("p|bob|0100", "Hi")
        elsewhere = compute.client.session(session.token)
        rows = await elsewhere.scan(prefix="t|ann|")
        assert rows == [(b"t|ann|0100|bob", b"Hi")]


@pytest.mark.parametrize("rows", [3, 3000])
async def test_a_load_holds_every_row_and_the_feed_every_change_after_it(rows: int) -> None:
    store = fake()
    async with running(store) as home, computing([home.address]) as compute:
        store.commit({b"s|ann|bob": b"1"})
        store.commit({b"p|bob|%04d" % at: b"v%d" % at for at in range(rows)})
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(store.rows.items(), b"ann")
        store.commit({b"p|bob|0001": None, b"p|bob|0002": b"edited", b"p|eve|0001": b"unseen"})
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(store.rows.items(), b"ann")
        assert compute.server.loader is not None
        assert compute.server.loader.counters.changes == 2, "changes of ranges that are not loaded are not told"
