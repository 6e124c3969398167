"""Views of a cluster: computes and homes are killed and stopped, and the tables come to what a scan returns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pequod_views import DurableView, open_target
from pequod_views.verifying import Verifier

from pequod import AsyncClient
from tests.cluster_faults.site import FaultSite, owner, put
from tests.views.sites import SqliteSite, equal, installed, managing, until

TIMELINES = DurableView.parse({"name": "timelines", "keys": "t|<user>|<time:4>|<poster>", "value": "body", "log": True})
POSTS = DurableView.parse({"name": "posts", "keys": "p|<poster>|<time:4>", "value": "body"})
VIEWS = (TIMELINES, POSTS)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FaultSite]:
    """Two homes of one database, and two computes."""
    async with FaultSite(tmp_path, computes=2) as site:
        yield site


async def write(client: AsyncClient, number: int) -> None:
    """Write a post that is in two timelines."""
    await put(client, f"p|bob|{number:04}", f"b{number}")


async def test_tables_go_on_whichever_server_goes_away(site: FaultSite, sqlite_site: SqliteSite) -> None:
    async with site.client() as client, site.client(timeout_s=10.0) as other:
        for user in ("ann", "liz"):
            await put(client, f"s|{user}|bob")
        await write(client, 1)
        await installed(sqlite_site, client, *VIEWS)
        async with managing(sqlite_site, other, VIEWS):
            await equal(sqlite_site, client, *VIEWS)
            watched = owner(other, TIMELINES.first).id
            site.kill(watched)
            await write(client, 2)
            await equal(sqlite_site, client, *VIEWS)
            await asyncio.to_thread(site.start, watched)
            # One that takes connections, and answers nothing.
            watched = owner(other, TIMELINES.first).id
            site.pause(watched)
            await write(client, 3)
            await equal(sqlite_site, client, *VIEWS)
            site.go_on(watched)
            site.kill("h1")
            await write(client, 4)
            await equal(sqlite_site, client, *VIEWS)
            site.kill("h2")
            for home in ("h1", "h2"):
                await asyncio.to_thread(site.start, home)
            await write(client, 5)
            await equal(sqlite_site, client, *VIEWS)


async def test_tables_are_compared_with_the_compute_that_their_manager_follows(
    site: FaultSite, sqlite_site: SqliteSite
) -> None:
    """Revisions of two computes say nothing of each other, and each view alone may have another one."""
    views = [
        DurableView.parse({"name": f"v{number}", "keys": f"p|{number}<rest>|<time:4>", "value": "body"})
        for number in range(6)
    ]
    async with site.client() as client:
        for number in range(6):
            await put(client, f"p|{number}x|0001", "Hi")
        assert len({owner(client, view.first).id for view in views}) == 2
        await installed(sqlite_site, client, *views)
        target = open_target(sqlite_site.database)
        async with managing(sqlite_site, client, views) as manager:
            await equal(sqlite_site, client, *views)
            await until(lambda: len(manager._running) == 1 and manager._running[0].follower.is_level)
            await sqlite_site.fetch("UPDATE v3 SET body = 'mine'")
            verdicts = [one for view in views for one in await Verifier(target, client).verify(view)]
            assert [one.trouble for one in verdicts] == [""] * 6
            assert [str(drift) for one in verdicts for drift in one.drifts] == ["p|3x|0001 has another body"]
        await target.close()
