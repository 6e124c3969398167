"""Each class of views, over a base that changes at random, with managers and servers that are killed.

A manager is killed while it has changes to take in. In the end the table is equal to a scan, and to what plain Python
computes from the base; and the log of applied revisions has no gap and nothing twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_views import DurableView

from pequod import AsyncClient
from tests.views.chaos.processes import KilledServer, ManagerProcess
from tests.views.classes import CLASSES, Base, ViewClass, apply, changes
from tests.views.sites import WAIT_S, PostgresSite, Site, SqliteSite, check_log, equal, installed

_LEASE_S = 0.2
_STEPS = 16
_KILLS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[KilledServer]:
    """A server that each class finds as the one before has left it."""
    server = KilledServer()
    yield server
    server.kill()


@pytest.mark.parametrize("one", CLASSES, ids=lambda one: one.name)
async def test_a_class_in_sqlite(one: ViewClass, server: KilledServer, sqlite_site: SqliteSite, tmp_path: Path) -> None:
    await follow(one, server, sqlite_site, tmp_path, kills_server=False)


@pytest.mark.parametrize(
    "one", [one for one in CLASSES if one.name in {"index", "sum", "join", "count_of_join"}], ids=lambda one: one.name
)
async def test_a_class_in_postgres_while_the_server_dies(
    one: ViewClass, server: KilledServer, postgres_site: PostgresSite, tmp_path: Path
) -> None:
    await follow(one, server, postgres_site, tmp_path, kills_server=True)


async def follow(one: ViewClass, server: KilledServer, site: Site, folder: Path, *, kills_server: bool) -> None:
    """Have a manager process follow the view of a class; judge its table in the end."""
    rng, base, view = random.Random(one.name), Base(), one.view
    async with AsyncClient(server.target, timeout_s=20) as client:

        async def write(changed: dict[str, str | None]) -> None:
            apply(base, changed)
            batch = client.batch()
            for key, value in changed.items():
                if value is None:
                    batch.remove(key)
                else:
                    batch.put(key, value)
            await batch.send()

        async def fill() -> None:
            """Have the base of this class, and no other, in the server."""
            await client.remove_range(first="", last="\x7f")
            if one.joins:
                await client.add_join(one.joins)
            await client.multi_put(base)

        await fill()
        await write(changes(rng, 60))
        await installed(site, client, view)
        file, log = folder / "views.toml", folder / "manager.log"
        file.write_text(one.file(server.target, site.database))
        manager = ManagerProcess(file, ["--lease", str(_LEASE_S)], log)
        deaths = rng.sample(range(_STEPS), _KILLS)
        end = rng.randrange(_STEPS) if kills_server else None
        try:
            for step in range(_STEPS):
                if step in deaths:
                    await has_worked(site, view, 1 + sum(death < step for death in deaths))
                await write(changes(rng, 8))
                await asyncio.sleep(rng.choice([0, 0.002, 0.01]))
                if step in deaths:
                    manager.restart()
                if step == end:
                    await server.restart()
                    await fill()
                    # Its data were in memory: it is another server now.
                    await installed(site, client, view, adopt=True)
                    # It may have looked at the server before, and then it ends a moment later.
                    manager.restart()
            await equal(site, client, view)
            rows = [row for _key, *row in await site.rows(view)]
            assert rows == [[site.cell(cell) for cell in row] for row in one.recompute(base)]
            assert rows, "there is something to compare"
            assert manager.is_running
        except AssertionError as error:
            error.add_note(log.read_text())
            raise
        finally:
            manager.kill()
    await check_log(site, view)


async def has_worked(site: Site, view: DurableView, count: int) -> None:
    """Wait until so many managers have taken in changes."""
    end_s = time.monotonic() + WAIT_S
    while (await site.fetch(f"SELECT count(DISTINCT owner) FROM {site.prefix}log"))[0][0] < count:
        assert time.monotonic() < end_s, f"{view.name}: the manager does nothing"
        await asyncio.sleep(0.02)
