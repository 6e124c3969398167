"""Many writes at once before each database: one transaction, clear refusals, and what was acknowledged is there."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from pequod_server import ServerConfig
from pequod_server.backing import SqliteStore
from pequod_server.stores import make_store

from pequod.client import AsyncClient
from pequod.engine import Rows
from pequod.errors import BackedKeyError, PequodError, PermissionDeniedError
from tests.backing.test_loader import FOLLOWING
from tests.backing.test_loader import serving as serving_fake
from tests.backing.test_twip import Database, database, serving, timeline

__all__ = ["database"]

KEYS = [f"p|bob|{number:010}" for number in range(300)]


async def _make_bodies_unique(database: Database) -> None:
    await database.application._run([("CREATE UNIQUE INDEX one_body ON posts (body)", ())])
    store = make_store(ServerConfig(**database.config))  # type: ignore[arg-type]
    assert store is not None
    if isinstance(store, SqliteStore):
        # Its triggers know the unique indexes.
        await store.install()
    await store.close()


async def test_writes_of_a_batch_are_one_transaction_for_each_run() -> None:
    async with serving_fake(FOLLOWING, backing_mode="write-through") as setting:
        before = (await setting.store.position()).position
        batch = setting.client.batch()
        for number in range(200):
            batch.put(f"p|bob|{number:04}", f"{number}")
        batch.remove("p|bob|0007")
        batch.scan("p|bob|", "p|bob}")
        batch.put("p|bob|0007", "again")
        results = await batch.send()
        assert results[:200] == [None] * 200
        assert results[200] is True
        assert isinstance(results[201], Rows)
        assert len(results[201].keys) == 199
        assert (await setting.store.position()).position == before + 2
        assert await setting.client.get("p|bob|0007") == b"again"


async def test_writes_that_a_role_may_not_make_do_not_part_a_transaction(tmp_path: Path) -> None:
    access_file = tmp_path / "access.toml"
    role = '[roles.bob]\nread = ["p|"]\nwrite = ["p|bob|"]\n'
    access_file.write_text(f'{role}[tokens.bob]\nrole = "bob"\nsha256 = "{sha256(b"bob").hexdigest()}"\n')
    settings = {"access_file": access_file, "reply_bytes_max": 400, "rows_max": 3}
    async with (
        serving_fake(FOLLOWING, backing_mode="write-through", **settings) as setting,
        AsyncClient(setting.target, token="bob") as client,
    ):
        before = (await setting.store.position()).position
        batch = client.batch()
        expected: list[object] = []
        for number in range(30):
            batch.put(f"p|bob|{number:04}", f"{number}")
            batch.put(f"p|liz|{number:04}", "not his")
            batch.remove("s|ann|bob")
            expected += [None, PermissionDeniedError, PermissionDeniedError]
        batch.scan("p|bob|", "p|bob}")
        batch.put("p|bob|0000", "again")
        batch.get("p|bob|0000")
        results = await batch.send()
        assert [type(one) if isinstance(one, PequodError) else one for one in results[:90]] == expected
        rows = [b"p|bob|%04d" % number for number in range(30)], [b"%d" % number for number in range(30)]
        assert results[90:] == [Rows([*rows[0], b"p|bob|0100"], [*rows[1], b"Hi"]), None, b"again"]
        assert (await setting.store.position()).position == before + 2


async def test_removals_tell_what_the_writes_before_them_left() -> None:
    async with serving_fake(FOLLOWING, backing_mode="write-through") as setting:
        batch = setting.client.batch()
        batch.remove("p|bob|0100")
        batch.remove("p|bob|0100")
        batch.put("p|bob|0100", "new")
        batch.remove("p|bob|0100")
        batch.put("p|bob|0100", "last")
        assert await batch.send() == [True, False, None, True, None]
        assert await setting.client.get("p|bob|0100") == b"last"


async def test_a_command_that_is_refused_does_not_hold_up_the_others(database: Database) -> None:
    await _make_bodies_unique(database)
    async with serving(database, backing_mode="write-through") as (server, client):
        batch = client.batch()
        for number, key in enumerate(KEYS):
            batch.put(key, "same" if number in {10, 200} else f"body {number}")
        batch.put("p|bob|no number", "x")
        batch.put("s|ann|bob", "")
        results = await batch.send()
        refused = {at: type(one).__name__ for at, one in enumerate(results) if one is not None}
        assert len(refused) == 2, refused
        assert 300 in refused
        assert "makes no row" in str(results[300]) or "p|bob|no number" in str(results[300])
        (other,) = refused.keys() - {300}
        assert other in {10, 200}
        server.engine.forget(b"", None)
        assert len(await timeline(client, "ann")) == 299


async def test_a_multi_put_is_all_or_none(database: Database) -> None:
    await _make_bodies_unique(database)
    async with serving(database, backing_mode="write-through") as (server, client):
        await client.multi_put({key: key for key in KEYS})
        assert await client.count(prefix="p|bob|") == 300
        with pytest.raises(PequodError, match="refused the write"):
            await client.multi_put({"p|ann|0000000001": "fine", "p|ann|0000000002": KEYS[0]})
        with pytest.raises(PequodError, match="calls of their own"):
            await client.multi_put({"p|ann|0000000001": "fine", "mine|1": "fine"})
        server.engine.forget(b"", None)
        assert await client.scan(prefix="p|ann|") == []
        assert await client.get("mine|1") is None


async def test_a_range_is_removed_from_the_database(database: Database) -> None:
    async with serving(database, backing_mode="write-through") as (server, client):
        rows = {f"p|liz|{number:010}": "Hi" for number in range(2100)}
        await client.multi_put({**rows, "p|bob|0000000001": "stays", "s|ann|liz": ""})
        assert len(await timeline(client, "ann")) == 2100
        assert await client.remove_range("p|liz|0000000050", "p|liz}") == 2050
        assert len(await timeline(client, "ann")) == 50
        for first, last in (("p|", "s}"), ("o", "p|bob}"), ("p|", None)):
            with pytest.raises(PequodError, match="calls of their own"):
                await client.remove_range(first, last)
        server.engine.forget(b"", None)
        assert await client.count(prefix="p|") == 51


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_in_write_around_all_ways_to_write_are_refused(database: Database) -> None:
    async with serving(database) as (_, client):
        for call in (
            lambda: client.put("p|bob|0000000001", "x"),
            lambda: client.remove("p|bob|0000000001"),
            lambda: client.multi_put({"mine|1": "x", "p|bob|0000000001": "x"}),
            lambda: client.remove_range(prefix="p|bob|"),
        ):
            with pytest.raises(BackedKeyError):
                await call()
        batch = client.batch()
        batch.put("p|bob|0000000001", "x")
        batch.put("p|bob|0000000002", "x")
        batch.put("mine|1", "fine")
        results = await batch.send()
        assert [getattr(one, "key", one) for one in results] == [b"p|bob|0000000001", b"p|bob|0000000002", None]
        # A key without a table is nobody's, even if it is called as a table of the database.
        await client.multi_put({"p": "loose"})
        assert await client.scan(prefix="p|") == []
