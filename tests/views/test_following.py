"""Tables follow ranges, exactly, with managers that come, go and fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pequod_server import ServerConfig
from pequod_views import DurableView, PartLostError, open_target
from pequod_views.definition import TableRow
from pequod_views.fence import PartFence
from pequod_views.followed import Counts, FollowedPart
from pequod_views.follower import Follower
from pequod_views.ledger import PartLedger
from pequod_views.parts import Advance, Position

from pequod import AsyncClient
from tests.server.serving import serving
from tests.views.sites import SETTINGS, Site, check_log, equal, installed, managing, reached, until

KARMA = "karma|<author> = count vote|<author>|<id>|<voter>"
KARMA_VIEW = DurableView.parse(
    {
        "name": "karma",
        "keys": "karma|<author>",
        "table": "karma",
        "value": {"column": "votes", "type": "integer"},
        "log": True,
    }
)
#: A view of each class of the paper, over the base data of `write`.
JOINS = """
    karma|<author> = count vote|<author>|<id>|<voter>;
    spent|<author> = sum cost|<author>|<id>;
    least|<author> = min cost|<author>|<id>;
    most|<author> = max cost|<author>|<id>;
    t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
    voted|<voter>|<author>|<id> = copy vote|<author>|<id>|<voter>;
    reach|<author> = count t|<user>|<time:3>|<author>
"""


def classes() -> list[DurableView]:
    number = {"column": "number", "type": "numeric"}
    declared: list[dict[str, Any]] = [
        {"name": "selection", "keys": "p|<poster>|<time:3>", "first": "p|b", "last": "p|c|05", "value": "body"},
        {"name": "projection", "keys": "p|<poster>|<time:3>", "slots": {"poster": False, "time": {"type": "integer"}}},
        {"name": "index_by_voter", "keys": "voted|<voter>|<author>|<id>"},
        {"name": "counted", "keys": "karma|<author>", "value": {"column": "votes", "type": "integer"}},
        {"name": "summed", "keys": "spent|<author>", "value": number},
        {"name": "least", "keys": "least|<author>", "value": number},
        {"name": "most", "keys": "most|<author>", "value": number},
        {"name": "joined", "keys": "t|<user>|<time:3>|<poster>", "value": "body", "parts": 3},
        {"name": "count_of_join", "keys": "reach|<author>", "value": {"column": "posts", "type": "integer"}},
        {"name": "plain_range", "first": "s|", "last": "s}", "value": {"column": "v", "type": "bytes"}},
    ]
    return [DurableView.parse({"table": one["name"], "log": True, **one}) for one in declared]


async def write(client: AsyncClient, number: int) -> None:
    """Change some base data, as a number says."""
    names = "abcd"
    who, whom = names[number % 4], names[number // 4 % 4]
    time, again = number * 7 % 100, number % 3 == 0
    batch = client.batch()
    for key, value in [
        (f"vote|{who}|{time % 5}|{whom}", b""),
        (f"cost|{who}|{time % 7}", b"%d.%d" % (number % 50, number % 10)),
        (f"p|{who}|{time:03}", b"post %d" % number),
        (f"s|{whom}|{who}", b"1"),
    ]:
        if again and number % 2:
            batch.remove(key)
        else:
            batch.put(key, value)
    await batch.send()


async def test_every_class_of_view_follows_a_changing_base(site: Site, client: AsyncClient) -> None:
    views = classes()
    await client.add_join(JOINS)
    for number in range(40):
        await write(client, number)
    await installed(site, client, *views)
    async with managing(site, client, views) as manager:
        for number in range(40, 160):
            await write(client, number)
        await equal(site, client, *views)
        assert manager.counts.replacements == 12
    for number in range(160, 240):
        await write(client, number)
    async with managing(site, client, views) as manager:
        for number in range(240, 260):
            await write(client, number)
        await equal(site, client, *views)
        # It went on from the positions in the database: nothing was read again.
        assert manager.counts.replacements == 0
    assert sum([await check_log(site, view) for view in views]) > 20


async def test_another_server_that_was_adopted_replaces_by_difference(site: Site) -> None:
    config = ServerConfig(listen="127.0.0.1:0", drain_s=0.5)
    views = [KARMA_VIEW]
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.add_join(KARMA)
        await client.multi_put({f"vote|{author}|1|bob": b"" for author in ("ann", "bob", "cat")})
        await installed(site, client, *views)
        async with managing(site, client, views):
            await equal(site, client, *views)
    before = await site.fetch("SELECT author, votes FROM karma ORDER BY author")
    assert before == [("ann", 1), ("bob", 1), ("cat", 1)]
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.add_join(KARMA)
        await client.multi_put({"vote|ann|1|bob": b"", "vote|cat|1|a": b"", "vote|cat|1|b": b"", "vote|dan|1|b": b""})
        await installed(site, client, *views, adopt=True)
        async with managing(site, client, views) as manager:
            await equal(site, client, *views)
            # The table is equal a moment before the manager counts its transaction.
            async with asyncio.timeout(10):
                while manager.counts.replacements < 1:  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.01)
            assert manager.counts.replacements == 1
    assert await site.fetch("SELECT author, votes FROM karma ORDER BY author") == [("ann", 1), ("cat", 2), ("dan", 1)]
    await check_log(site, KARMA_VIEW)


async def test_a_range_that_became_empty_leaves_an_empty_table(site: Site) -> None:
    config = ServerConfig(listen="127.0.0.1:0", drain_s=0.5)
    view = DurableView.parse({"name": "all", "first": "", "last": "x"})
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.multi_put({f"k{number:05}": b"" for number in range(4100)})
        await installed(site, client, view)
        async with managing(site, client, [view]):
            await equal(site, client, view)
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.multi_put({f"k{number:05}": b"" for number in range(3, 4100, 1366)})
        await installed(site, client, view, adopt=True)
        async with managing(site, client, [view]):
            await equal(site, client, view)
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await installed(site, client, view, adopt=True)
        async with managing(site, client, [view]):
            await equal(site, client, view)
    assert await site.rows(view) == []


async def test_joins_of_the_file_are_installed_before_rows_are_read(site: Site, client: AsyncClient) -> None:
    await client.put("vote|ann|1|bob", b"")
    await installed(site, client, KARMA_VIEW)
    settings = type(SETTINGS)(lease_s=2.0, progress_s=0.05, joins=KARMA)
    async with managing(site, client, [KARMA_VIEW], settings):
        await reached(site, KARMA_VIEW, client.revision)
    assert await site.fetch("SELECT author, votes FROM karma") == [("ann", 1)]


async def test_of_two_managers_with_one_part_the_older_writes_nothing(site: Site, client: AsyncClient) -> None:
    await client.add_join(KARMA)
    await client.put("vote|ann|1|bob", b"")
    await installed(site, client, KARMA_VIEW)
    first, second = open_target(site.database), open_target(site.database)
    views = {"karma": KARMA_VIEW}
    (old,) = await PartLedger(first).take("old", views, 1, 60.0)
    assert await PartLedger(second).take("new", views, 1, 60.0) == []
    await site.fetch(f"UPDATE {site.prefix}parts SET leased_until = 0")
    follower = Follower(client, first, [FollowedPart(KARMA_VIEW, old)], SETTINGS, Counts())
    # Its lease has ended, but nobody has taken the part: it goes on.
    running = asyncio.create_task(follower.run())
    await equal(site, client, KARMA_VIEW)
    taken: list[object] = []
    while not taken:
        await site.fetch(f"UPDATE {site.prefix}parts SET leased_until = 0")
        taken += await PartLedger(second).take("new", views, 1, 60.0)
    await client.put("vote|ann|2|bob", b"")
    await asyncio.wait_for(running, 10)
    assert await site.fetch("SELECT author, votes FROM karma") == [("ann", 1)]
    with pytest.raises(PartLostError):
        await PartFence(first).position(old)
    await first.close()
    await second.close()


async def test_a_step_is_taken_once_though_its_holder_does_not_know_that_it_was(
    site: Site, client: AsyncClient
) -> None:
    """The answer to a commit may be lost. The step that begins where that one began changes nothing."""
    await installed(site, client, KARMA_VIEW)
    target = open_target(site.database)
    fence = PartFence(target)
    (held,) = await PartLedger(target).take("one", {"karma": KARMA_VIEW}, 1, 60.0)

    async def advance(before: Position | None, after: Position, row: TableRow) -> None:
        step = Advance(before, after, 1, is_replacement=before is None, unfit_count=0, unfit_example="", age_s=0.0)
        async with target.transaction() as transaction:
            await transaction.upsert(KARMA_VIEW, [row])
            await fence.advance(transaction, held, step, 60.0)
            await fence.note(transaction, [(held, step)])

    first, second, elsewhere = Position(1, 5), Position(1, 7), Position(2, 7)
    await advance(None, first, (b"karma|ann", "ann", 1))
    await advance(first, second, (b"karma|ann", "ann", 2))
    for before in (None, first, elsewhere):
        with pytest.raises(PartLostError):
            await advance(before, Position(1, 6), (b"karma|ann", "ann", 3))
    assert await fence.position(held) == second
    assert await site.fetch("SELECT votes FROM karma") == [(2,)]
    assert await check_log(site, KARMA_VIEW) == 2
    await target.close()


async def test_a_second_manager_gets_half_and_all_when_the_first_leaves(site: Site, client: AsyncClient) -> None:
    await client.multi_put({f"k|{number:03}": b"" for number in range(100)})
    view = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "parts": 5, "log": True})
    await installed(site, client, view)
    async with managing(site, client, [view], name="a") as a:
        await until(lambda: len(a.parts) == 5)
        async with managing(site, client, [view], name="b") as b:
            await until(lambda: (len(a.parts), len(b.parts)) == (3, 2))
            await client.multi_put({f"k|{number:03}": b"" for number in range(0, 300, 7)})
            await equal(site, client, view)
        await until(lambda: len(a.parts) == 5)
        await client.remove_range(prefix="k|1")
        await equal(site, client, view)
    await check_log(site, view)


async def test_a_dead_managers_parts_are_taken_within_seconds(site: Site, client: AsyncClient) -> None:
    await client.put("k|001", b"")
    view = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "log": True})
    await installed(site, client, view)
    dead = open_target(site.database)
    assert len(await PartLedger(dead).take("dead", {"keys": view}, 5, SETTINGS.lease_s)) == 1
    await dead.close()
    async with managing(site, client, [view]):
        await equal(site, client, view, wait_s=8)
    assert await check_log(site, view) >= 1


async def test_progress_moves_the_position_on_without_changes(site: Site, client: AsyncClient) -> None:
    view = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "log": True})
    await installed(site, client, view)
    async with managing(site, client, [view]):
        await client.put("elsewhere", b"")
        revision = client.revision
        await reached(site, view, revision)
    await check_log(site, view)
