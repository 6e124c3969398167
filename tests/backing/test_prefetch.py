"""What timelines will lack is loaded when the change comes that they select by, before a read has to wait for it."""

from __future__ import annotations

import asyncio

import pytest
from pequod_grammar import parse
from pequod_server.backing import Changes, RowChange
from pequod_server.database.prefetch import Prefetcher

from pequod.engine import Engine, Loadable, Range
from pequod.errors import BackingUnavailableError
from tests.backing.test_loader import FOLLOWING, TIMELINE, Setting, serving
from tests.peer.homes import LATEST, computing, expected, fake, rows_of, running, until

LATER = {b"s|ann|tom": b"", b"s|ann|sue": b"", b"p|tom|0120": b"Hey", b"p|sue|0090": b"Hm"}


def is_loaded(setting: Setting, *keys: bytes) -> bool:
    return all(map(setting.server.engine.is_loaded, keys))


async def test_a_database_is_asked_for_the_posts_of_one_who_is_followed_now_before_a_read() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        before = len(setting.loads)
        setting.store.commit(LATER)
        await until(lambda: is_loaded(setting, b"p|tom|0120", b"p|sue|0090"))
        assert setting.loads[before:] == [2], "one load for both"
        setting.store.commit({b"p|tom|0130": b"again"})
        await setting.caught_up()
        assert await setting.timeline("ann") == [b"Hm", b"Hi", b"Ho", b"Hey", b"again"]
        assert len(setting.loads) == before + 1, "the read had all that it needs"


async def test_what_nobody_has_read_is_not_loaded() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        before = len(setting.loads)
        setting.store.commit({b"s|liz|tom": b"", b"p|tom|0120": b"Hey", b"p|bob|0101": b"new"})
        await setting.caught_up()
        setting.store.commit({b"s|ann|sue": b""})
        await until(lambda: is_loaded(setting, b"p|sue|0001"))
        assert len(setting.loads) == before + 1
        assert not is_loaded(setting, b"p|tom|0120")


async def test_a_large_commit_is_not_looked_at_but_its_reads_are_right() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        before = len(setting.loads)
        setting.store.commit({b"s|ann|%04d" % number: b"" for number in range(1025)} | {b"p|0007|0120": b"Hey"})
        await setting.caught_up()
        await asyncio.sleep(0.01)
        assert len(setting.loads) == before
        assert await setting.timeline("ann") == [b"Hi", b"Ho", b"Hey"]


async def test_where_the_database_does_not_answer_the_read_says_so_and_a_later_one_is_right() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        before = len(setting.loads)
        setting.store.fail("load", times=2)
        setting.store.commit(LATER)
        await setting.caught_up()
        await until(lambda: len(setting.loads) > before)
        with pytest.raises(BackingUnavailableError):
            await setting.timeline("ann")
        assert await setting.timeline("ann") == [b"Hm", b"Hi", b"Ho", b"Hey"]


async def test_what_is_wanted_while_a_load_is_under_way_is_loaded_at_once_after_it() -> None:
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(TIMELINE))
    engine.load(b"s|ann|", b"s|ann}", [])
    engine.scan(b"t|ann|", b"t|ann}")
    loads: list[list[Loadable]] = []
    go_on = asyncio.Event()

    async def load(lacking: list[Loadable]) -> None:
        loads.append(list(lacking))
        await go_on.wait()
        for one in lacking:
            engine.load(one.first, one.last, [])

    prefetcher = Prefetcher(engine, load)  # type: ignore[arg-type]
    for poster in (b"bob", b"cat", b"dan"):
        engine.apply(b"s|ann|" + poster, b"1")
        prefetcher.note(Changes(1, 1, (RowChange(b"s|ann|" + poster, b"1"),)))
        await asyncio.sleep(0)
    go_on.set()
    await until(lambda: engine.is_loaded(b"p|dan|"))
    bob, cat, dan = (Range(b"p|%b|" % name, b"p|%b}" % name) for name in (b"bob", b"cat", b"dan"))
    # What is under way is loaded by nobody again: `Loader.load` sees to that.
    assert loads == [[bob], [bob, cat, dan]]
    await prefetcher.stop()


async def test_a_compute_shows_whom_a_user_follows_now_although_its_homes_are_gone() -> None:
    store = fake()
    rows = {b"s|ann|bob": b"1", b"p|bob|0001": b"Hi", b"p|tom|0002": b"Hey"}
    async with running(store) as home, computing([home.address]) as compute:
        store.commit(rows)
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(rows.items(), b"ann")
        rows[b"s|ann|tom"] = b"1"
        store.commit({b"s|ann|tom": b"1"})
        await until(lambda: compute.server.engine.is_loaded(b"p|tom|0002"))
        await home.server.close()
        assert await rows_of(compute, "t|ann|") == expected(rows.items(), b"ann")
