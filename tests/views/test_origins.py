"""A table shows the data that it was installed with; a manager with another server writes nothing and holds nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pequod_server import ServerConfig
from pequod_views import DurableView, OtherServerError, open_target
from pequod_views.install import check
from pequod_views.origins import origins_of
from pequod_views.reading import status
from typer.testing import CliRunner

from pequod import AsyncClient
from pequod.cli.app import app
from tests.forked import started_server
from tests.server.serving import serving
from tests.views.sites import Site, SqliteSite, equal, installed, managing, until

KEYS = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "value": "body", "parts": 2, "log": True})
PRODUCTION = {f"k|{number:03}": b"production" for number in range(100)}
FILE = """
server = "{target}"
database = "{database}"
[[view]]
name = "keys"
keys = "k|<number:3>"
value = "body"
parts = 2
"""


@asynccontextmanager
async def server(**settings: Any) -> AsyncIterator[AsyncClient]:
    async with (
        serving(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, **settings)) as port,
        AsyncClient(f"127.0.0.1:{port}") as client,
    ):
        yield client


async def test_a_manager_with_another_server_takes_no_part_and_changes_no_row(site: Site) -> None:
    async with server() as production, server() as laptop:
        await production.multi_put(PRODUCTION)
        await laptop.put("k|007", b"laptop")
        await installed(site, production, KEYS)
        async with managing(site, production, [KEYS], name="production") as right:
            await equal(site, production, KEYS)
            async with managing(site, laptop, [KEYS], name="laptop") as wrong:
                await until(lambda: "another server" in wrong.server_trouble)
                await production.put("k|000", b"changed")
                await equal(site, production, KEYS)
                assert (len(right.parts), len(wrong.parts), right.managers) == (2, 0, (right.name,))
        # Also when nobody else holds the parts.
        async with managing(site, laptop, [KEYS], name="laptop") as wrong:
            await until(lambda: "another server" in wrong.server_trouble)
            assert not wrong.parts
        assert len(await site.rows(KEYS)) == 100


async def test_install_with_another_server_is_refused_and_adopting_it_is_the_way(site: Site) -> None:
    async with server() as production, server() as other:
        await production.multi_put(PRODUCTION)
        await other.put("k|007", b"other")
        await installed(site, production, KEYS)
        async with managing(site, production, [KEYS], name="old") as old:
            await equal(site, production, KEYS)
            with pytest.raises(OtherServerError, match="install --adopt"):
                await installed(site, other, KEYS)
            changed = DurableView.parse({"name": "keys", "keys": "k|<number:3>", "value": "other_body"})
            with pytest.raises(OtherServerError, match="install --adopt"):
                await installed(site, other, changed)
            assert await installed(site, other, KEYS, adopt=True) == [
                "keys: shows this server from now on; what differs is replaced"
            ]
            async with managing(site, other, [KEYS], name="new"):
                await equal(site, other, KEYS)
                await production.put("k|008", b"late")
                await until(lambda: "another server" in old.server_trouble and not old.parts)
                await equal(site, other, KEYS)


async def test_rows_of_a_server_that_lost_its_memory_stay_until_it_is_adopted(site: Site) -> None:
    async with server() as first:
        await first.multi_put(PRODUCTION)
        await installed(site, first, KEYS)
        async with managing(site, first, [KEYS]):
            await equal(site, first, KEYS)
    target = open_target(site.database)
    async with server() as second, managing(site, second, [KEYS]) as manager:
        await until(lambda: manager.server_trouble)
        assert len(await site.rows(KEYS)) == 100
        await installed(site, second, KEYS, adopt=True)
        await equal(site, second, KEYS)
        assert {part.state for part in await status(target)} == {"follows"}
    await target.close()


async def test_a_manager_whose_server_was_replaced_tells_it_and_gives_its_parts_up(
    sqlite_site: SqliteSite, tmp_path: Path
) -> None:
    target = open_target(sqlite_site.database)
    with started_server() as (address, _):
        async with AsyncClient(address) as client:
            await client.multi_put(PRODUCTION)
            await installed(sqlite_site, client, KEYS)
            async with managing(sqlite_site, client, [KEYS]) as manager:
                await equal(sqlite_site, client, KEYS)
                with started_server() as (other, _):
                    async with AsyncClient(other) as elsewhere:
                        # Another server answers at the place of the first one.
                        manager._client = elsewhere
                        for running in manager._running:
                            running.follower._client = elsewhere
                        await until(lambda: not manager.parts)
                        async with asyncio.timeout(30):
                            parts = await status(target)
                            while {part.state for part in parts} != {"waits"}:
                                await asyncio.sleep(0.02)
                                parts = await status(target)
                        assert all("another server" in part.trouble for part in parts)
                        assert len(await sqlite_site.rows(KEYS)) == 100
    await target.close()


async def test_a_snapshot_keeps_the_name_of_the_data_also_on_another_host(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "one.snapshot"
    async with server(snapshot_file=file) as first:
        await first.multi_put(PRODUCTION)
        await installed(site, first, KEYS)
        async with managing(site, first, [KEYS]):
            await equal(site, first, KEYS)
        await first.save_snapshot()
        name = await origins_of(first, KEYS)
    moved = file.rename(tmp_path / "elsewhere.snapshot")
    async with server(snapshot_file=moved) as second:
        assert await origins_of(second, KEYS) == name
        await second.put("k|000", b"changed")
        async with managing(site, second, [KEYS]):
            await equal(site, second, KEYS)
    async with server() as empty:
        assert await origins_of(empty, KEYS) != name


@pytest.fixture
def backed(tmp_path: Path) -> dict[str, Any]:
    """The settings of a server before a SQLite file."""
    path, mapping = tmp_path / "base.db", tmp_path / "mapping.toml"
    with sqlite3.connect(path) as file:
        file.executescript("PRAGMA journal_mode = WAL; CREATE TABLE k (number TEXT PRIMARY KEY, body TEXT);")
        file.executemany("INSERT INTO k VALUES (?, 'row')", [(f"{number:03}",) for number in range(50)])
    file.close()
    mapping.write_text('[[mapping]]\nkeys = "k|<number>"\ntable = "k"\nvalue = "body"\n')
    install = ["backing", "install", str(mapping), f"sqlite:{path}"]
    assert CliRunner().invoke(app, install, prog_name="pequod").exit_code == 0
    return {"backing": f"sqlite:{path}", "backing_mapping": mapping}


async def test_servers_before_one_database_are_the_same_one(site: Site, backed: dict[str, Any], tmp_path: Path) -> None:
    with started_server(*flags(backed)) as (one, _), started_server(*flags(backed)) as (two, _):
        async with AsyncClient(one) as first, AsyncClient(two) as second:
            await installed(site, first, KEYS)
            async with managing(site, first, [KEYS], name="a") as a, managing(site, second, [KEYS], name="b") as b:
                await until(lambda: (len(a.parts), len(b.parts)) == (1, 1))
                await equal(site, first, KEYS)
    # And after both were started anew.
    with started_server(*flags(backed)) as (three, _):
        async with AsyncClient(three) as third, managing(site, third, [KEYS]) as manager:
            await until(lambda: len(manager.parts) == 2)
            await equal(site, third, KEYS)


def flags(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


async def test_a_ledger_of_an_earlier_version_is_installed_once_more(site: Site) -> None:
    async with server() as client:
        await client.multi_put(PRODUCTION)
        await installed(site, client, KEYS)
        await site.fetch(f"ALTER TABLE {site.prefix}views DROP COLUMN origins")
        target = open_target(site.database)
        (problem,) = await check(target, [KEYS])
        assert "run `pequod views install`" in problem
        assert await installed(site, client, KEYS) == []
        assert await check(target, [KEYS]) == []
        await target.close()
        async with managing(site, client, [KEYS]):
            await equal(site, client, KEYS)


def test_run_with_a_target_of_the_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def views(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["views", *map(str, arguments)], prog_name="pequod")

    with started_server() as (production, _), started_server() as (laptop, _):
        file = tmp_path / "views.toml"
        file.write_text(FILE.format(target=production, database=f"sqlite:{tmp_path / 'live.db'}"))
        assert views("install", file).exit_code == 0
        monkeypatch.setenv("PEQUOD_TARGET", laptop)
        for command in ("run", "install"):
            outcome = views(command, file)
            assert outcome.exit_code == 3, outcome.output
            assert "PEQUOD_TARGET" in outcome.stderr
            assert "install --adopt" in outcome.stderr
        assert "shows this server from now on" in views("install", file, "--adopt").stdout
