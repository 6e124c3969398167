"""Parts are split and handed over while writers, managers and readers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from pequod_views import DurableView, TargetRefusedError, open_target
from pequod_views.load import PartLoad, Rates, loads_of, moves
from pequod_views.moving import PartMover
from pequod_views.sampling import balance, split_key
from pequod_views.verifying import Verifier

from pequod import AsyncClient
from tests.views.sites import SETTINGS, Site, check_log, equal, installed, managing, until

VIEW = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "value": "v", "log": True})
QUIET = DurableView.parse({"name": "quiet", "keys": "q|<number:3>", "log": True})


@asynccontextmanager
async def writing(client: AsyncClient, seed: int) -> AsyncIterator[None]:
    """Write and remove keys below k|400 meanwhile."""
    random = Random(seed)

    async def write() -> None:
        while True:
            key = f"k|{random.randrange(400):03}"
            await (client.remove(key) if random.random() < 0.2 else client.put(key, b"%d" % random.randrange(1000)))
            # The managers share this event loop.
            await asyncio.sleep(0.002)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_change_is_in_one_half_once_whoever_dies_meanwhile(site: Site, client: AsyncClient) -> None:
    random = Random(1)
    await installed(site, client, VIEW)
    target = open_target(site.database)
    mover = PartMover(target)
    async with managing(site, client, [VIEW], name="a") as a, managing(site, client, [VIEW], name="b") as b:
        async with writing(client, 2):
            await until(lambda: bool(a.parts or b.parts))
            for number in random.sample(range(1, 400), 6):
                await mover.split("keys", b"k|%03d" % number)
                if random.random() < 0.5:
                    # As if its follower was killed: whatever it was doing is undone, or was done unknown to anybody.
                    for running in random.choice([a, b])._running:
                        running.task.cancel()
                await asyncio.sleep(random.random() / 5)
            await until(lambda: len(a.parts) + len(b.parts) == 7 and min(len(a.parts), len(b.parts)) == 3)
        await equal(site, client, VIEW)
    bounds = await site.fetch(f"SELECT first, last FROM {site.prefix}parts ORDER BY first")
    assert [last for _, last in bounds[:-1]] == [first for first, _ in bounds[1:]]
    assert (bounds[0][0], bounds[-1][1]) == (VIEW.first, VIEW.last)
    assert await check_log(site, VIEW) > 7
    await target.close()


async def test_a_split_reads_no_row_again(site: Site, client: AsyncClient) -> None:
    await client.multi_put({f"k|{number:03}": b"" for number in range(100)})
    await installed(site, client, VIEW)
    target = open_target(site.database)
    async with managing(site, client, [VIEW]) as manager:
        await equal(site, client, VIEW)
        await until(lambda: manager.counts.replacements == 1)
        before = await PartMover(target).split("keys", b"k|050")
        assert (before.first, before.last) == (VIEW.first, VIEW.last)
        await until(lambda: len(manager.parts) == 2)
        await client.multi_put({f"k|{number:03}": b"new" for number in (49, 50, 200)})
        await equal(site, client, VIEW)
        assert manager.counts.replacements == 1
    await target.close()


async def test_what_cannot_be_split_stays(site: Site, client: AsyncClient) -> None:
    target = open_target(site.database)
    mover = PartMover(target)
    with pytest.raises(TargetRefusedError, match="nothing is installed"):
        await mover.counted()
    unfit = DurableView.parse({"name": "unfit", "keys": "u|<n>", "value": {"column": "v", "type": "integer"}})
    await client.put("u|1", b"no number")
    await installed(site, client, VIEW, unfit)
    async with managing(site, client, [VIEW, unfit]):
        await equal(site, client, unfit)
        for view, key, reason in [
            ("keys", b"j", "no part of keys holds"),
            ("other", b"k|1", "no part of other holds"),
            ("keys", b"k|", "begins at"),
        ]:
            with pytest.raises(TargetRefusedError, match=reason):
                await mover.split(view, key)
        async with asyncio.timeout(10):
            statement = f"SELECT unfit FROM {site.prefix}parts WHERE view = 'unfit'"
            while not (await site.fetch(statement))[0][0]:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        with pytest.raises(TargetRefusedError, match="do not fit"):
            await mover.split("unfit", b"u|5")
    assert [one.first for one in await mover.counted()] == [b"k|", b"u|"]
    await target.close()


async def test_a_hot_part_is_split_and_its_half_goes_to_the_idle_manager(site: Site, client: AsyncClient) -> None:
    settings = type(SETTINGS)(lease_s=1.0, progress_s=0.05, balance_above=1.0)
    await installed(site, client, VIEW, QUIET)
    views = [VIEW, QUIET]
    async with (
        managing(site, client, views, settings, name="a") as a,
        managing(site, client, views, settings, name="b") as b,
    ):
        async with writing(client, 1):
            await until(lambda: all(any(part.view is VIEW for part in one.parts) for one in (a, b)))
        await equal(site, client, *views)
    await check_log(site, VIEW)


async def test_balance_moves_the_load_and_keeps_the_counts(site: Site, client: AsyncClient) -> None:
    await installed(site, client, VIEW)
    target = open_target(site.database)
    mover = PartMover(target)
    async with (
        managing(site, client, [VIEW], name="a") as a,
        managing(site, client, [VIEW], name="b") as b,
        writing(client, 5),
    ):
        await until(lambda: bool(a.parts or b.parts))
        at = await split_key(client, mover, VIEW, 0.5)
        assert b"k|100" < at < b"k|300"
        for key in (b"k|200", b"k|500", b"k|600"):
            await mover.split("keys", key)
        await until(lambda: len(a.parts) == len(b.parts) == 2)
        parts = {one.place: one for one in await mover.counted()}
        hot = [("keys", b"k|"), ("keys", b"k|200")]
        if parts[hot[0]].owner != parts[hot[1]].owner:
            # Both hot ones to one of them, to have something to mend.
            cold = next(one for one in parts.values() if one.owner == parts[hot[0]].owner and one.place != hot[0])
            swap = {hot[1]: parts[hot[0]].owner, cold.place: parts[hot[1]].owner}
            assert len(await mover.hand_over([one.load(0.0) for one in parts.values()], swap)) == 2
            await until(lambda: len(a.parts) == len(b.parts) == 2)
        async with asyncio.timeout(60):
            owners = dict[object, str]()
            while len({owners.get(place) for place in hot}) == 1:
                # A new holder has written nothing at first.
                await balance(target, 0.5)
                owners = {one.place: one.owner for one in await mover.counted()}
        await until(lambda: len(a.parts) == len(b.parts) == 2)
    await check_log(site, VIEW)
    await target.close()


async def test_a_comparison_that_meets_a_split_says_so(site: Site, client: AsyncClient) -> None:
    await client.multi_put({f"k|{number:03}": b"" for number in range(10)})
    await installed(site, client, VIEW)
    target = open_target(site.database)
    async with managing(site, client, [VIEW]) as manager:
        await equal(site, client, VIEW)
        verifier = Verifier(target, client)
        async with target.transaction() as transaction:
            (held,) = await verifier._parts_of(transaction, VIEW)
        await PartMover(target).split("keys", b"k|005")
        assert "split meanwhile" in (await verifier._verify_part(VIEW, held)).trouble
        await until(lambda: len(manager.parts) == 2)
        assert [verdict.trouble for verdict in await verifier.verify(VIEW)] == ["", ""]
    await target.close()


def test_loads_are_even_where_an_exchange_can_make_them_so() -> None:
    random = Random(3)
    for _ in range(300):
        managers = ["a", "b", "c"][: random.randint(1, 3)]
        parts = [
            PartLoad(("v", bytes([number])), random.choice(managers), 1, random.choice([0, 1, 10, 100]) * 1.0)
            for number in range(random.randint(1, 12))
        ]
        found = moves(parts, managers)
        moved = [PartLoad(one.place, found.get(one.place, one.owner), 1, one.rows_per_s) for one in parts]
        if not found:
            continue
        most, before = max(loads_of(moved, managers).values()), max(loads_of(parts, managers).values())
        assert most < 0.9 * before
        counts = [sum(one.owner == name for one in moved) for name in managers]
        assert max(counts) - min(counts) <= 1
        assert moves(moved, managers) == {} or most > max(one.rows_per_s for one in parts)


def test_rates_are_of_the_time_between_two_looks() -> None:
    rates = Rates()
    assert rates.take({("v", b"a"): 100}, 10.0) == {("v", b"a"): 0.0}
    assert rates.take({("v", b"a"): 300, ("v", b"b"): 5}, 12.0) == {("v", b"a"): 50.0, ("v", b"b"): 0.0}
