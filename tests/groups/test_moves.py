"""Ranges that get another owner while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from pequod_grammar import parse
from pequod_server.backing import FakeStore, KeyRange
from pequod_server.database.databases import Databases, HomeGroup

from pequod.engine import Engine, Rows
from tests.groups.pair import A_RANGES, B_RANGES, FOLLOWING, JOINS, groups, store, until

#: All posts are B's, but those below p|c.
LATER = {"A": (KeyRange(b"p|", b"p|c"), KeyRange(b"s|", b"s}")), "B": (KeyRange(b"p|c", b"p}"), KeyRange(b"v|", b"v}"))}


class Behind:
    """An engine with databases behind it, without a server."""

    def __init__(self, stores: dict[str, FakeStore]) -> None:
        self.engine = Engine()
        self.stores = stores
        self.databases = Databases(self.engine, groups(stores))
        self.engine.add_joins(parse(JOINS))

    async def scan(self, first: bytes, last: bytes) -> Rows:
        """Read a range."""
        return await self.databases.read(lambda: self.engine.scan(first, last), [(first, last)])

    async def assign(self, ranges: Mapping[str, tuple[KeyRange, ...]]) -> None:
        """Give ranges to groups by their names."""
        await self.databases.assign([HomeGroup(name, self.stores[name], owned) for name, owned in ranges.items()])


@asynccontextmanager
async def behind() -> AsyncIterator[Behind]:
    """Yield an engine over the two groups, each of which has all posts."""
    stores = {name: store(name) for name in "AB"}
    stores["A"].commit({**FOLLOWING, b"p|bob|0100": b"A's", b"p|dan|0100": b"A's", b"p|zoe|0100": b"A's"})
    stores["B"].commit({b"p|bob|0100": b"B's", b"p|dan|0100": b"B's", b"p|zoe|0100": b"B's", b"v|bob|ann": b""})
    setting = Behind(stores)
    await setting.databases.start()
    try:
        yield setting
    finally:
        await setting.databases.stop()
        setting.databases._check()
        setting.engine._check()


async def test_a_range_that_moves_shows_its_new_owners_rows_and_nothing_else_is_forgotten() -> None:
    async with behind() as setting:
        assert (await setting.scan(b"p|", b"p}")).values == [b"A's", b"A's", b"B's"]
        await setting.assign(LATER)
        assert [(one.first, one.last) for one in setting.engine.loaded()] == [(b"p|", b"p|c"), (b"p|m", b"p}")]
        assert (await setting.scan(b"p|", b"p}")).values == [b"A's", b"B's", b"B's"]
        assert setting.stores["B"].loads[-1] == (KeyRange(b"p|c", b"p|m"),)


async def test_changes_of_the_old_owner_are_not_taken_after_the_move_and_those_of_the_new_one_not_before() -> None:
    async with behind() as setting:
        await setting.scan(b"p|", b"p}")
        setting.stores["B"].commit({b"p|dan|0100": b"too early"})
        await setting.databases.caught_up()
        assert (await setting.scan(b"p|dan|", b"p|dan}")).values == [b"A's"]
        await setting.assign(LATER)
        assert (await setting.scan(b"p|dan|", b"p|dan}")).values == [b"too early"]
        setting.stores["A"].commit({b"p|dan|0100": b"too late"})
        setting.stores["B"].commit({b"p|dan|0200": b"in time"})
        await setting.databases.caught_up()
        assert (await setting.scan(b"p|dan|", b"p|dan}")).values == [b"too early", b"in time"]


@pytest.mark.parametrize("step", ["load", "changes"])
async def test_a_load_that_is_under_way_while_its_range_moves_lands_from_the_new_owner(step: str) -> None:
    async with behind() as setting:
        async with setting.stores["A"].held(step):  # type: ignore[arg-type]
            if step == "changes":
                # The load sees further than the feed has come, and waits for it.
                setting.stores["A"].commit({b"p|dan|0200": b"A's"})
            reading = asyncio.create_task(setting.scan(b"p|dan|", b"p|dan}"))
            await until(lambda: bool(setting.stores["A"].loads))
            await asyncio.sleep(0.01)
            await setting.assign(LATER)
        assert (await reading).values == [b"B's"]
        assert setting.databases.owner_of(b"p|dan|0100").name == "B"


async def test_a_group_may_come_and_go() -> None:
    async with behind() as setting:
        third = store("C")
        third.commit({b"p|bob|0100": b"C's"})
        groups_of_three = [
            HomeGroup("A", setting.stores["A"], A_RANGES[1:]),
            HomeGroup("B", setting.stores["B"], B_RANGES),
            HomeGroup("C", third, A_RANGES[:1]),
        ]
        assert (await setting.scan(b"p|bob|", b"p|bob}")).values == [b"A's"]
        await setting.databases.assign(groups_of_three)
        await until(lambda: setting.databases.named("C").position is not None)
        assert (await setting.scan(b"p|bob|", b"p|bob}")).values == [b"C's"]
        await setting.databases.assign(groups(setting.stores))
        assert third.status.state == "closed"
        assert (await setting.scan(b"p|bob|", b"p|bob}")).values == [b"A's"]
        assert [one.name for one in setting.databases.all] == ["A", "B"]


async def test_a_table_may_come_later_and_what_was_computed_without_it_is_dropped() -> None:
    stores = {name: store(name) for name in "AB"}
    stores["A"].commit({**FOLLOWING, b"p|bob|0100": b"Hi"})
    engine = Engine()
    engine.add_joins(parse(JOINS))
    engine.put(b"s|ann|bob", b"")
    engine.put(b"p|bob|0001", b"ours")
    databases = Databases(engine)
    bounds = (b"t|ann|", b"t|ann}")
    assert (await databases.read(lambda: engine.scan(*bounds), [bounds])).values == [b"ours"]
    engine.remove(b"p|bob|0001")
    await databases.assign([HomeGroup("A", stores["A"], (KeyRange(b"p|", b"p}"),))])
    await until(lambda: databases.named("A").position is not None)
    try:
        assert (await databases.read(lambda: engine.scan(*bounds), [bounds])).values == [b"Hi"]
        with pytest.raises(ValueError, match="'s' has computed keys, or keys that clients have written"):
            await databases.assign([HomeGroup("A", stores["A"], A_RANGES)])
        assert databases.owner_of(b"p|zoe|1").name == "A", "nothing is changed"
        engine._check()
    finally:
        await databases.stop()


async def test_a_move_that_is_cut_off_leaves_the_former_owners() -> None:
    async with behind() as setting:
        await setting.scan(b"p|", b"p}")
        async with setting.databases.named("A").one_at_a_time:
            moving = asyncio.create_task(setting.assign(LATER))
            await asyncio.sleep(0.01)
            moving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await moving
        assert (await setting.scan(b"p|dan|", b"p|dan}")).values == [b"A's"]
        setting.stores["A"].commit({b"p|dan|0100": b"still"})
        await setting.databases.caught_up()
        assert (await setting.scan(b"p|dan|", b"p|dan}")).values == [b"still"]
