"""One follower for many parts: one watch, one transaction; a part that is refused or lost holds no other up."""

from __future__ import annotations

import pytest
from pequod_views import DurableView, open_target
from pequod_views.followed import FollowerSettings
from pequod_views.install import uninstall
from pequod_views.ledger import PartLedger

from pequod import AsyncClient
from tests.views.sites import Site, check_log, equal, installed, managing, reached, until


def three_views() -> list[DurableView]:
    return [DurableView.parse({"name": name, "keys": f"{name}|<who>", "value": "body", "log": True}) for name in "abc"]


async def uninstalled(site: Site, *names: str) -> None:
    target = open_target(site.database)
    await uninstall(target, names, drops_tables=True)
    await target.close()


async def test_all_views_share_a_watch_and_a_transaction(site: Site, client: AsyncClient) -> None:
    """What is written at one moment is seen in all tables at one moment."""
    views = [DurableView.parse({"name": f"v{number}", "keys": "p|<who>", "value": "body"}) for number in range(20)]
    await installed(site, client, *views)
    settings = FollowerSettings(lease_s=2.0, progress_s=60.0)
    async with managing(site, client, views, settings) as manager:
        await equal(site, client, *views)
        # Followers that have filled their parts join within a beat.
        await until(lambda: len(manager._running) == 1 and manager._running[0].follower.is_level)
        before = manager.counts.transactions
        for number in range(10):
            await client.put("p|ann", str(number))
            await reached(site, views[0], client.revision)
            bodies = await site.fetch(" UNION ALL ".join(f"SELECT body FROM v{number}" for number in range(20)))
            assert bodies == [(str(number),)] * 20
        await until(lambda: manager.counts.changes == 10 * 20)
        assert manager.counts.transactions - before == 10


async def test_a_refused_part_delays_no_other_and_joins_them_again(site: Site, client: AsyncClient) -> None:
    views = three_views()
    await installed(site, client, *views)
    await site.fetch("CREATE UNIQUE INDEX one_body ON b (body)")
    async with managing(site, client, views) as manager:
        await client.multi_put({f"{name}|{who}": "Hi" for name in "abc" for who in ("ann", "bob")})
        await equal(site, client, views[0], views[2])
        await until(lambda: [part.view.name for part in manager.parts if part.trouble] == ["b"])
        await client.multi_put({f"{name}|cat": "Ho" for name in "abc"})
        await equal(site, client, views[0], views[2])
        assert await site.rows(views[1]) == []
        await site.drop_index("one_body", "b")
        await equal(site, client, *views)
        await until(lambda: len(manager._running) == 1)
        await client.multi_put({f"{name}|cat": "Hey" for name in "abc"})
        await equal(site, client, *views)
        assert manager.counts.replacements == 3
    for view in views:
        await check_log(site, view)


async def test_a_part_that_is_lost_is_left_out_and_the_others_go_on(site: Site, client: AsyncClient) -> None:
    """Another manager has taken one of three parts, and this one does not know: the rows of the others are written."""
    views = three_views()
    await installed(site, client, *views)
    target = open_target(site.database)
    settings = FollowerSettings(lease_s=60.0, progress_s=0.05)
    async with managing(site, client, views, settings) as manager:
        await equal(site, client, *views)
        await until(lambda: len(manager._running) == 1 and manager._running[0].follower.is_level)
        await site.fetch(f"UPDATE {site.prefix}parts SET leased_until = 0 WHERE view = 'b'")
        (taken,) = await PartLedger(target).take("other", {view.name: view for view in views}, 3, 60.0)
        assert taken.part.view == "b"
        await client.multi_put({f"{name}|ann": "Hi" for name in "abc"})
        await equal(site, client, views[0], views[2])
        await until(lambda: [part.view.name for part in manager.parts] == ["a", "c"])
        assert manager.counts.parts_lost == 1
        assert await site.rows(views[1]) == []
        await client.multi_put({f"{name}|bob": "Hi" for name in "abc"})
        await equal(site, client, views[0], views[2])
        assert await site.rows(views[1]) == []
    await target.close()


async def test_a_manager_outlives_an_uninstallation_and_says_what_it_lacks(site: Site, client: AsyncClient) -> None:
    views = three_views()
    await installed(site, client, *views)
    async with managing(site, client, views) as manager:
        await equal(site, client, *views)
        await uninstalled(site)
        await client.put("a|ann", "Hi")
        await until(lambda: "nothing is installed" in manager.target_trouble)
        await until(lambda: all(part.trouble for part in manager.parts))
        await installed(site, client, *views)
        await equal(site, client, *views)
        await until(lambda: not manager.target_trouble)


async def test_a_manager_says_which_views_have_another_definition_since(
    site: Site, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = three_views()[:2]
    await installed(site, client, first, second)
    changed = DurableView.parse({"name": "b", "keys": "b|<who>", "value": "text"})
    async with managing(site, client, [first, second]) as manager:
        await equal(site, client, first, second)
        await uninstalled(site, "b")
        await installed(site, client, first, changed)
        await until(lambda: "b: installed with another definition" in caplog.text)
        await until(lambda: [part.view.name for part in manager.parts] == ["a"])
        await client.put("a|ann", "Hi")
        await equal(site, client, first)
    assert caplog.text.count("installed with another definition") == 1
