"""A SQLite file that several processes write: whose turn it is, and what stays in the thread of the connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from pequod_views import DurableView, open_target
from pequod_views.targets.sqlite import SqliteTarget

from pequod import AsyncClient
from tests.views.sites import SqliteSite, equal, installed, managing


async def test_no_cursor_leaves_the_thread_of_its_connection(
    sqlite_site: SqliteSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was dropped in the event loop reset a statement that the thread was using: a misuse, as SQLite said."""
    found = list[object]()
    run = SqliteTarget._run

    async def run_and_look(self: SqliteTarget, work: Callable[[], Any]) -> Any:
        result = await run(self, work)
        found.append(result)
        return result

    monkeypatch.setattr(SqliteTarget, "_run", run_and_look)
    view = DurableView.parse({"name": "v", "keys": "p|<who>", "value": "body", "log": True})
    await client.multi_put({"p|ann": "1", "p|bob": "2"})
    await installed(sqlite_site, client, view)
    async with managing(sqlite_site, client, [view]):
        await equal(sqlite_site, client, view)
        await client.put("p|ann", "3")
        await client.remove("p|bob")
        await equal(sqlite_site, client, view)
    assert found
    assert not [result for result in found if isinstance(result, sqlite3.Cursor)]


async def test_a_transaction_waits_for_one_of_another_process_and_then_has_its_turn(sqlite_site: SqliteSite) -> None:
    await sqlite_site.fetch("CREATE TABLE k (n)")
    target = open_target(sqlite_site.database)
    async with target.transaction() as transaction:
        await transaction.fetch("INSERT INTO k VALUES (1)")
    other = sqlite3.connect(sqlite_site.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    async def write() -> None:
        async with target.transaction() as transaction:
            await transaction.fetch("INSERT INTO k VALUES (3)")

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    other.execute("INSERT INTO k VALUES (2)")
    other.execute("COMMIT")
    other.close()
    await writing
    assert await sqlite_site.fetch("SELECT n FROM k ORDER BY rowid") == [(1,), (2,), (3,)]
    await target.close()
