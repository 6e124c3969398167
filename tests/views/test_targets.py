"""Tables: installed, checked, changed; cells of all types; what readers may ask; a target that is away."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import pytest
from pequod_views import (
    DurableView,
    TargetAwayError,
    TargetMissingError,
    TargetRefusedError,
    ViewFileError,
    open_target,
)
from pequod_views.errors import TargetBusyError
from pequod_views.install import check, install, uninstall
from pequod_views.kinds import KINDS
from pequod_views.ledger import PartLedger
from pequod_views.metrics import ManagerCollector
from pequod_views.reading import status, wait_for

from pequod import AsyncClient
from pequod.freshness import Mark, Token, database_of
from tests.views.sites import PostgresSite, Site, SqliteSite, check_log, equal, installed, managing, reached, until


def view_of(**members: Any) -> DurableView:
    return DurableView.parse({"name": "v", "log": True, **members})


async def problems(site: Site, *views: DurableView) -> list[str]:
    target = open_target(site.database)
    try:
        return await check(target, views)
    finally:
        await target.close()


async def test_cells_of_all_types_go_through_both_ways_of_writing(site: Site, client: AsyncClient) -> None:
    values = {
        "text": "caf\u00e9 'x' \"y\" \\",
        "bytes": "x",
        "integer": -(1 << 63),
        "numeric": 12.5,
        "float": 0.1,
        "boolean": True,
        "json": {"a": [1, None]},
        "timestamp_s": 1_700_000_000,
        "timestamp_us": 1_700_000_000_000_001,
        "uuid": "00000000-0000-0000-0000-0000000000ff",
    }
    assert values.keys() == KINDS.keys()
    import json

    fields = {kind: {"column": f"a {kind}", "type": kind} for kind in values}
    view = view_of(keys="r|<id>", fields=fields)
    await client.put("r|1", json.dumps(values))
    await client.put("r|2", "{}")
    await installed(site, client, view)
    async with managing(site, client, [view]):
        await equal(site, client, view)
        await client.put("r|2", json.dumps(values))
        await client.put("r|1", "{}")
        await equal(site, client, view)
    for row in await site.rows(view):
        assert len(row) == 12


async def test_rows_that_do_not_fit_are_left_out_and_counted(site: Site, client: AsyncClient) -> None:
    view = view_of(keys="n|<id>", value={"type": "integer", "column": "n"})
    await client.multi_put({"n|1": "1", "n|2": "many", "n|3": "more", "n|other|shape": "x"})
    await installed(site, client, view)
    target = open_target(site.database)

    async def unfit() -> tuple[int, str]:
        (part,) = await status(target)
        return part.unfit, part.unfit_example

    async with managing(site, client, [view]):
        await equal(site, client, view)
        assert await unfit() == (2, "'n|2': b'many' is no integer of 64 bits")
        await client.multi_put({"n|2": "2", "n|4": "four"})
        await reached(site, view, client.revision)
        await equal(site, client, view)
        assert await unfit() == (2, "'n|4': b'four' is no integer of 64 bits")
        await client.remove_range(prefix="n|")
        await reached(site, view, client.revision)
        assert await unfit() == (0, "")
    await target.close()


async def test_install_is_done_once_and_again_after_a_change(site: Site, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>|<time:3>", value="body")
    assert "nothing is installed" in (await problems(site, view))[0]
    await client.multi_put({f"p|{who}|{time:03}": f"{who} {time}" for who in "abcd" for time in range(30)})
    assert await installed(site, client, view) == [
        "v: made the table v",
        "v: is new; its range has 1 parts",
    ]
    assert await problems(site, view) == []
    assert await installed(site, client, view) == []
    async with managing(site, client, [view]):
        await equal(site, client, view)
    narrow = view_of(keys="p|<who>|<time:3>", value="body", first="p|b", last="p|c|", parts=3)
    assert "another definition" in (await problems(site, narrow))[0]
    assert await installed(site, client, narrow) == ["v: has changed; its range has 3 parts"]
    # A manager with the earlier definition gets no part.
    async with managing(site, client, [view]) as old, managing(site, client, [narrow]) as new:
        await until(lambda: len(new.parts) == 3)
        await client.put("p|b|999", "new")
        await equal(site, client, narrow)
        assert old.parts == []
    assert len(await site.rows(narrow)) == 31
    target = open_target(site.database)
    assert await install(target, client, [narrow], recut=True) == ["v: is cut anew; its range has 3 parts"]
    await target.close()


async def test_check_tells_of_a_view_that_is_new_and_of_a_table_that_is_gone(site: Site, client: AsyncClient) -> None:
    old, new = view_of(keys="p|<who>"), DurableView.parse({"name": "w", "keys": "q|<who>"})
    await installed(site, client, old)
    await client.put("p|ann", "")
    async with managing(site, client, [old]):
        await equal(site, client, old)
    await site.fetch("DROP TABLE v")
    assert await problems(site, old, new) == [
        "v: there is no table v; run `pequod views install`",
        "w: there is no table w; run `pequod views install`",
        "w: it is not installed; run `pequod views install`",
    ]
    assert await installed(site, client, old, new) == [
        "v: made the table v",
        "w: made the table w",
        "v: had lost its table; its range has 1 parts",
        "w: is new; its range has 1 parts",
    ]
    assert await problems(site, old, new) == []
    async with managing(site, client, [old, new]):
        # Not from the position that the part had, since the rows before it are gone.
        await equal(site, client, old, new)
    assert await site.rows(old) == [(b"p|ann", "ann")]


async def test_views_are_taken_out_one_by_one_while_a_manager_runs(site: Site, client: AsyncClient) -> None:
    views = [view_of(keys="p|<who>", value="body"), DurableView.parse({"name": "w", "keys": "q|<who>", "value": "n"})]
    await client.multi_put({"p|ann": "1", "q|bob": "2"})
    await installed(site, client, *views)
    target = open_target(site.database)
    async with managing(site, client, views) as manager:
        await equal(site, client, *views)
        assert await uninstall(target, ["v"]) == ["v: kept the table v"]
        await until(lambda: len(manager.parts) == 1)
        await client.multi_put({"p|ann": "3", "q|bob": "4"})
        await equal(site, client, views[1])
        assert await site.fetch("SELECT body FROM v") == [("1",)], "nobody keeps it any more"
        with pytest.raises(TargetRefusedError, match=r"^[^ ]+: not installed: v"):
            await uninstall(target, ["w", "v"])
        assert await uninstall(target, drops_tables=True) == [
            "w: dropped the table w",
            "no view is left; removed what was beside them",
        ]
        await until(lambda: manager.target_trouble != "")
    assert await problems(site, views[1]) == ["nothing is installed; run `pequod views install`"]
    assert await uninstall(target) == []
    # As if it had never been there; a table that was kept is taken up.
    assert await installed(site, client, *views) == [
        "w: made the table w", "v: is new; its range has 1 parts", "w: is new; its range has 1 parts",
    ]  # fmt: skip
    async with managing(site, client, views):
        await equal(site, client, *views)
    await target.close()


async def test_what_depends_on_a_table_keeps_it(postgres_site: PostgresSite, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>", value="body")
    await installed(postgres_site, client, view)
    await postgres_site.fetch("CREATE VIEW mine AS SELECT body FROM v")
    target = open_target(postgres_site.database)
    with pytest.raises(TargetRefusedError, match="depend on it"):
        await uninstall(target, drops_tables=True)
    assert await problems(postgres_site, view) == []
    await postgres_site.fetch("DROP VIEW mine")
    await target.close()


async def test_a_table_with_other_columns_is_refused(site: Site, client: AsyncClient) -> None:
    await site.fetch("CREATE TABLE v (pequod_key text, who text)")
    with pytest.raises(TargetRefusedError) as error:
        await installed(site, client, view_of(keys="p|<who>", value="body"))
    assert "v.pequod_key is of type text, and should be" in str(error.value)
    assert "has no column body" in str(error.value)
    assert "v.pequod_key is not the primary key" in str(error.value)
    assert len(await problems(site, view_of(keys="p|<who>", value="body"))) == 1


@pytest.mark.parametrize(
    ("key", "index", "is_taken"),
    [
        ("PRIMARY KEY", "", True),
        ("NOT NULL", "CREATE UNIQUE INDEX one ON v (pequod_key)", True),
        ("NOT NULL", "CREATE INDEX one ON v (pequod_key)", False),
        ("NOT NULL", "CREATE UNIQUE INDEX one ON v (pequod_key, who)", False),
        ("NOT NULL", "CREATE UNIQUE INDEX one ON v (who)", False),
        ("NOT NULL", "CREATE UNIQUE INDEX one ON v (pequod_key) WHERE who = 'ann'", False),
    ],
)
async def test_the_key_of_a_table_that_was_there_is_unique(
    site: Site, client: AsyncClient, key: str, index: str, is_taken: bool
) -> None:
    """Rows are written by their keys."""
    if " WHERE " in index and not site.has_partial_indexes:
        return
    await site.fetch(f"CREATE TABLE v (pequod_key {site.key_type} {key}, who {site.text_type})")
    if index:
        await site.fetch(index)
    view = view_of(keys="p|<who>")
    if not is_taken:
        with pytest.raises(TargetRefusedError, match="is not the primary key"):
            await installed(site, client, view)
        return
    await installed(site, client, view)
    assert await problems(site, view) == []
    await client.put("p|ann", "")
    async with managing(site, client, [view]):
        await equal(site, client, view)


async def test_extra_columns_and_indexes_of_the_owner_stay(site: Site, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>", value="body")
    await installed(site, client, view)
    await site.fetch("ALTER TABLE v ADD COLUMN note text DEFAULT 'mine'")
    await site.fetch("CREATE INDEX by_body ON v (body)")
    await client.put("p|ann", "Hi")
    async with managing(site, client, [view]):
        await equal(site, client, view)
    assert await site.fetch("SELECT note FROM v") == [("mine",)]


async def test_a_refusal_of_the_database_is_told_and_waited_out(site: Site, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>", value="body")
    await installed(site, client, view)
    await site.fetch("CREATE UNIQUE INDEX one_body ON v (body)")
    target = open_target(site.database)
    async with managing(site, client, [view]) as manager:
        await reached(site, view, 0)
        await client.multi_put({"p|ann": "Hi", "p|bob": "Hi"})
        await until(lambda: any(follower.trouble for follower in manager.parts))
        metrics = {metric.name: metric.samples[0].value for metric in ManagerCollector(manager).collect()}
        assert metrics["pequod_views_parts_waiting"] == 1
        await asyncio.sleep(0.2)
        (part,) = await status(target)
        assert part.state == "waits"
        assert "one_body" in part.trouble or "v.body" in part.trouble
        await site.drop_index("one_body", "v")
        await equal(site, client, view)
    await check_log(site, view)
    await target.close()


def token_at(position: int, timeline: int = 1) -> Token:
    return Token({Mark(database_of("sqlite", "base"), timeline): position})


async def test_a_reader_waits_for_a_token(site: Site, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>", parts=2)
    await client.multi_put({"p|a": "", "p|b": "", "p|c": "", "p|d": ""})
    await installed(site, client, view)
    async with managing(site, client, [view]):
        await equal(site, client, view)
    target = open_target(site.database)
    for wanted, had, is_reached in [
        (token_at(300), [token_at(300), token_at(301)], True),
        (token_at(300), [token_at(300), token_at(299)], False),
        (token_at(300), [token_at(1 << 60), token_at((1 << 64) - 1)], True),
        (token_at(300, 2), [token_at(300), token_at(300)], False),
        (Token({**token_at(3).positions, **token_at(5, 2).positions}), [token_at(300), token_at(300)], False),
        (token_at(0), [Token({}), token_at(1)], False),
        (Token({}), [token_at(1), token_at(1)], True),
    ]:
        parts = await site.fetch(f"SELECT first FROM {site.prefix}parts ORDER BY first")
        for (first,), token in zip(parts, had, strict=True):
            text = str(token) if token.positions else ""
            async with target.transaction() as transaction:
                await transaction.fetch(f"UPDATE {site.prefix}parts SET token = $1 WHERE first = $2", text, first)
        assert await wait_for(target, "v", wanted, 0) is is_reached
        if isinstance(site, PostgresSite):
            assert await site.fetch(f"SELECT pequod_views.wait_for('v', '{wanted}', 0)") == [(is_reached,)]
    with pytest.raises(TargetRefusedError, match="no view 'w' is installed there; there are: v"):
        await wait_for(target, "w", token_at(0), 0)
    if isinstance(site, PostgresSite):
        for arguments, reason in {
            f"'w', '{token_at(0)}', 0": "no view 'w' is installed here",
            f"NULL, '{token_at(0)}', 0": "the name of the view is NULL",
            "'v', NULL, 0": "the token is NULL",
            f"'v', '{token_at(0)}', NULL": "the number of seconds is NULL",
            f"'v', '{token_at(0)}', 'NaN'": "not NaN",
            f"'v', '{token_at(0)}', 'Infinity'": "not Infinity",
            "'v', 'nonsense', 0": "'nonsense' is no token: tokens start with pq1.",
            "'v', 'pq1.A!', 0": "'pq1.A!' is no token",
            "'v', 'pq1.AZ86YcI', 0": "'pq1.AZ86YcI' is no token",
        }.items():
            with pytest.raises(asyncpg.PostgresError, match=re.escape(reason)):
                await site.fetch(f"SELECT pequod_views.wait_for({arguments})")
    await target.close()


async def test_a_target_that_is_away_is_waited_for(postgres_site: PostgresSite, client: AsyncClient) -> None:
    view = view_of(keys="p|<who>", value="body")
    await installed(postgres_site, client, view)
    async with managing(postgres_site, client, [view]) as manager:
        await client.put("p|ann", "Hi")
        await equal(postgres_site, client, view)
        await asyncio.to_thread(postgres_site.cluster.stop, kill=True)
        await client.put("p|bob", "Hi")
        await until(lambda: manager.target_trouble and manager.counts.target_failures)
        await asyncio.to_thread(postgres_site.cluster.start)
        await equal(postgres_site, client, view)
        await until(lambda: not manager.target_trouble)
        # The server kept what happened meanwhile: the position was continued.
        assert manager.counts.replacements == 1
    await check_log(postgres_site, view)


async def test_a_locked_sqlite_file_is_waited_for(
    sqlite_site: SqliteSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from pequod_views.targets import sqlite

    monkeypatch.setattr(sqlite, "_BUSY_S", 0.05)
    view = view_of(keys="p|<who>", value="body")
    await installed(sqlite_site, client, view)
    async with managing(sqlite_site, client, [view]) as manager:
        await client.put("p|ann", "Hi")
        await equal(sqlite_site, client, view)
        locker = sqlite3.connect(sqlite_site.path, timeout=60, isolation_level=None, check_same_thread=False)
        # In a thread: the manager may hold the lock, and needs the event loop to let go of it.
        await asyncio.to_thread(locker.execute, "BEGIN IMMEDIATE")
        await client.put("p|bob", "Hi")
        await until(lambda: manager.counts.target_failures)
        locker.execute("COMMIT")
        locker.close()
        await equal(sqlite_site, client, view)
    await check_log(sqlite_site, view)


async def test_names_of_databases_are_checked(postgres_site: PostgresSite) -> None:
    with pytest.raises(ViewFileError, match="'mysql' is no kind of one") as refused:
        open_target("mysql://views:secret@x/y")
    assert "secret" not in str(refused.value)
    missing = open_target(postgres_site.cluster.dsn("none"))
    with pytest.raises(TargetMissingError, match=r"/none.*: there is no such database"):
        async with missing.transaction():
            pass
    await missing.close()
    away = open_target("postgresql://postgres@/postgres?host=/nowhere")
    assert away.name == "postgresql:///postgres?host=/nowhere"
    with pytest.raises(TargetAwayError):
        await status(away)
    there = open_target(postgres_site.database)
    assert await PartLedger(there).shown() == []
    await there.close()
    await away.close()


async def test_a_deadlock_is_no_database_that_is_away(postgres_site: PostgresSite) -> None:
    await postgres_site.fetch("CREATE TABLE locked (id int PRIMARY KEY, n int)")
    await postgres_site.fetch("INSERT INTO locked VALUES (1, 0), (2, 0)")
    target = open_target(postgres_site.database)
    both_began = asyncio.Barrier(2)

    async def write(*ids: int) -> None:
        async with target.transaction() as transaction:
            for number, one in enumerate(ids):
                await transaction.fetch(f"UPDATE locked SET n = n + 1 WHERE id = {one}")
                if not number:
                    await both_began.wait()

    errors = [one for one in await asyncio.gather(write(1, 2), write(2, 1), return_exceptions=True) if one is not None]
    await target.close()
    (error,) = errors
    assert isinstance(error, TargetBusyError)
    assert "has rolled a transaction back, which is done again: deadlock detected" in str(error)
