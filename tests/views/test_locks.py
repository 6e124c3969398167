"""Commands beside running managers in PostgreSQL: whatever locks one waits for, nobody waits in a circle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg
from pequod_views import DurableView, open_target
from pequod_views.install import install, uninstall

from pequod import AsyncClient
from tests.views.sites import WAIT_S, PostgresSite, equal, installed, managing, until


@contextmanager
def no_deadlock(site: PostgresSite) -> Iterator[None]:
    """See that PostgreSQL finds no deadlock; its log tells, whoever the victim is."""
    log = site.cluster.directory / "log"
    before = len(log.read_text())
    yield
    assert [line for line in log.read_text()[before:].splitlines() if "deadlock" in line] == []


@asynccontextmanager
async def holding(site: PostgresSite, statement: str) -> AsyncIterator[None]:
    """Hold what a statement locks."""
    connection = await asyncpg.connect(site.database)
    try:
        async with connection.transaction():
            await connection.execute(statement)
            yield
    finally:
        await connection.close()


async def waiting(site: PostgresSite, count: int, *, wait_s: float = WAIT_S) -> bool:
    """Wait until so many transactions wait for locks; return whether they do."""
    end_s = time.monotonic() + wait_s
    while (await site.fetch("SELECT count(*) FROM pg_locks WHERE NOT granted"))[0][0] < count:
        if time.monotonic() > end_s:
            return False
        await asyncio.sleep(0.01)
    return True


def view_of(**more: object) -> DurableView:
    return DurableView.parse({"name": "v", "keys": "p|<who>", "value": "body", **more})


async def test_views_are_taken_out_while_a_manager_writes(postgres_site: PostgresSite, client: AsyncClient) -> None:
    """The last view's part was locked first, and then the table of parts, for whose row a manager waited."""
    site, view = postgres_site, view_of()
    await client.put("p|ann", "1")
    await installed(site, client, view)
    target = open_target(site.database)
    async with managing(site, client, [view]) as manager:
        await equal(site, client, view)
        with no_deadlock(site):
            async with holding(site, "SELECT FROM pequod_views.managers"):
                taking_out = asyncio.create_task(uninstall(target))
                assert await waiting(site, 1)
                await client.put("p|ann", "2")
                # The manager may wait as well by now.
                await waiting(site, 2, wait_s=0.5)
            assert "no view is left" in (await asyncio.wait_for(taking_out, WAIT_S))[-1]
            await until(lambda: manager.target_trouble != "")
    await target.close()


async def test_a_view_is_narrowed_while_a_manager_writes_rows_that_go(
    postgres_site: PostgresSite, client: AsyncClient
) -> None:
    """Rows were locked before the part that they are of, and a manager does it the other way around."""
    site, view, narrow = postgres_site, view_of(), view_of(first="p|x")
    await client.multi_put({"p|ann": "1", "p|bob": "1", "p|xan": "1"})
    await installed(site, client, view)
    target = open_target(site.database)
    async with managing(site, client, [view]) as manager:
        await equal(site, client, view)
        with no_deadlock(site):
            async with holding(site, "SELECT FROM v WHERE who = 'bob' FOR UPDATE"):
                narrowing = asyncio.create_task(install(target, client, [narrow]))
                assert await waiting(site, 1)
                await client.put("p|ann", "2")
                await waiting(site, 2, wait_s=0.5)
            assert await asyncio.wait_for(narrowing, WAIT_S) == ["v: has changed; its range has 1 parts"]
            await until(lambda: not manager.parts)
    assert await site.rows(narrow) == [(b"p|xan", "xan", "1")]
    await target.close()
