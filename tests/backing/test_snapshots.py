"""Warm starts before a database: what is not told anew is forgotten, and what is served is what the database has."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import FakeStore, parse_mappings

from pequod.client import AsyncClient
from pequod.errors import PequodError
from tests.backing.test_loader import FOLLOWING, MAPPINGS, TIMELINE
from tests.backing.test_twip import Database, caught_up, database, timeline

__all__ = ["database"]

POST = "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3)"
UPDATE = "UPDATE posts SET body = 'ONE'"
FOLLOW = 'INSERT INTO subscriptions ("user", poster) VALUES ($1, $2)'


@asynccontextmanager
async def serving(database: Database, file: Path) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=TIMELINE10, snapshot_file=file, **database.config))  # type: ignore[arg-type]
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


TIMELINE10 = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


async def test_what_changed_while_the_server_was_away_is_seen(database: Database, tmp_path: Path) -> None:
    run, file = database.application._run, tmp_path / "file"
    await run([(FOLLOW, ("ann", "bob")), (POST, ("bob", 1, "one")), (POST, ("bob", 2, "two"))])
    async with serving(database, file) as (_, client):
        assert len(await timeline(client, "ann")) == 2
        await client.put("mine|1", "kept")
    await run([(POST, ("bob", 3, "three")), ("DELETE FROM posts WHERE at = $1", (1,))])
    async with serving(database, file) as (server, client):
        assert server.loader is not None
        found = [value for _, value in await timeline(client, "ann")]
        assert found == [b"two", b"three"]
        assert await client.get("mine|1") == b"kept"
        is_warm = database.config.get("backing_feed") != "notify"
        assert server.loader.counters.flights == (0 if is_warm else 2)
        await run([(POST, ("bob", 4, "four"))])
        await caught_up(server)
        assert [value for _, value in await timeline(client, "ann")] == [b"two", b"three", b"four"]
        saved = await client.save_snapshot()
        assert (saved.ranges, saved.backed_keys, saved.keys) == (2, 4, 5)
        with pytest.raises(PequodError, match="restores it when it starts"):
            await client.restore_snapshot()


@pytest.mark.parametrize("database", ["slot"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE posts ALTER body TYPE text USING upper(body)",
        "SELECT pg_drop_replication_slot('pequod')",
        "ALTER PUBLICATION pequod DROP TABLE posts;" + UPDATE + ";ALTER PUBLICATION pequod ADD TABLE posts",
    ],
)
async def test_what_the_slot_cannot_tell_is_read_again(database: Database, tmp_path: Path, statement: str) -> None:
    run, file = database.application._run, tmp_path / "file"
    await run([(FOLLOW, ("ann", "bob")), (POST, ("bob", 1, "one"))])
    async with serving(database, file) as (_, client):
        assert len(await timeline(client, "ann")) == 1
    for one in statement.split(";"):
        await run([(one, ())])
    async with serving(database, file) as (server, client):
        assert server.loader is not None
        found = [value for _, value in await timeline(client, "ann")]
        assert found == [b"one" if "slot" in statement else b"ONE"]
        assert server.loader.counters.flights == 2


@pytest.mark.parametrize("database", ["slot"], indirect=True)
async def test_a_file_from_before_the_last_stop_is_behind_the_slot(database: Database, tmp_path: Path) -> None:
    run, file = database.application._run, tmp_path / "file"
    await run([(FOLLOW, ("ann", "bob")), (POST, ("bob", 1, "one"))])
    async with serving(database, file) as (_, client):
        assert len(await timeline(client, "ann")) == 1
    shutil.copy(file, tmp_path / "old")
    async with serving(database, file) as (server, client):
        await run([(POST, ("bob", 2, "two"))])
        await caught_up(server)
    shutil.copy(tmp_path / "old", file)
    async with serving(database, file) as (server, client):
        assert [value for _, value in await timeline(client, "ann")] == [b"one", b"two"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_copy_of_the_file_from_before_is_another_database(database: Database, tmp_path: Path) -> None:
    run, file = database.application._run, tmp_path / "file"
    path = Path(str(database.config["backing"]).removeprefix("sqlite:"))
    await run([(FOLLOW, ("ann", "bob")), (POST, ("bob", 1, "one"))])
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(path, tmp_path / "backup.db")
    async with serving(database, file) as (_, client):
        await run([(POST, ("bob", 2, "two"))])
        assert len(await timeline(client, "ann")) == 2
    _replace(path, tmp_path / "backup.db")
    for number in range(10):
        await run([(POST, ("bob", 100 + number, "other"))])
    async with serving(database, file) as (server, client):
        assert server.loader is not None
        assert [value for _, value in await timeline(client, "ann")] == [b"one"] + [b"other"] * 10
        assert server.loader.counters.flights == 2


def _replace(path: Path, backup: Path) -> None:
    for name in ("", "-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    shutil.copy(backup, path)


@pytest.mark.parametrize("other", ["mapping", "name", "database away", "no database"])
async def test_rows_of_another_database_are_not_used(tmp_path: Path, other: str) -> None:
    config = ServerConfig(listen="127.0.0.1:0", joins=TIMELINE, snapshot_file=tmp_path / "file")
    first = FakeStore(MAPPINGS)
    first.commit(FOLLOWING)
    server = PequodServer(config, store=first)
    async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
        assert len(await client.scan(prefix="t|ann|")) == 2
        await client.put("mine|1", "kept")
    if other == "database away":
        first.fail("position")
    await server.stop()
    mappings = (
        parse_mappings("[[mapping]]\nkeys = 's|<user>|<poster>'\ntable = 'others'") if other == "mapping" else MAPPINGS
    )
    second = FakeStore(mappings)
    second.commit({b"s|ann|eve": b""})
    if other == "name":
        second.name = "other"
    server = PequodServer(config, store=None if other == "no database" else second)
    async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
        assert server.engine.loaded() == []
        assert await client.get("mine|1") == b"kept"
        assert await client.scan(prefix="s|ann|") == ([] if other == "no database" else [(b"s|ann|eve", b"")])
    await server.stop()


async def test_a_warm_server_serves_once_it_has_caught_up(tmp_path: Path) -> None:
    config = ServerConfig(listen="127.0.0.1:0", joins=TIMELINE, snapshot_file=tmp_path / "file")
    store = FakeStore(MAPPINGS)
    store.commit(FOLLOWING)
    server = PequodServer(config, store=store)
    async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
        assert len(await client.scan(prefix="t|ann|")) == 2
    await server.stop()
    again = FakeStore(MAPPINGS)
    again.commit(FOLLOWING)
    for number in range(200):
        again.commit({b"p|bob|%04d" % number: b"new"})
    server = PequodServer(config, store=again)
    async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
        assert len(await client.scan(prefix="t|ann|")) == 201
        assert again.loads == []
    await server.stop()
