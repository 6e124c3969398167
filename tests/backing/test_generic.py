"""A table of keys and values behind the cache: no mapping, no SQL, any bytes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import cast

import asyncpg
import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import KeyRange, Mapping, SqliteStore
from pequod_server.backing.mapping import GENERIC_TABLE
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store
from typer.testing import CliRunner

from pequod import Get, Put, Remove, Scan, absent, value_of
from pequod.cli.app import app
from pequod.client import AsyncClient
from pequod.errors import BackingUnavailableError, PequodError, SettingError
from tests.backing.conftest import Postgres, clear

JOIN = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


class Keeping:
    """A database with the table, and a program beside the server that writes to it."""

    def __init__(self, backing: str, feed: str) -> None:
        self.backing = backing
        self.feed = feed
        self.settings = {"backing": backing, "backing_tables": "p, s"}
        if feed != "sqlite":
            self.settings["backing_feed"] = feed

    def run(self, command: str) -> str:
        feed = [] if self.feed == "sqlite" else ["--feed", self.feed]
        result = CliRunner().invoke(app, ["backing", command, "--generic", *feed, self.backing])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    async def write(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write rows in one transaction, without the server."""
        if self.feed == "sqlite":
            with closing(sqlite3.connect(self.backing.removeprefix("sqlite:"))) as file, file:
                for key, value in changes:
                    file.execute(f"DELETE FROM {GENERIC_TABLE} WHERE key = ?", (key,))
                    if value is not None:
                        file.execute(f"INSERT INTO {GENERIC_TABLE} (key, value) VALUES (?, ?)", (key, value))
            return
        connection = await asyncpg.connect(self.backing)
        async with connection.transaction():
            for key, value in changes:
                await connection.execute(f"DELETE FROM {GENERIC_TABLE} WHERE key = $1", key)
                if value is not None:
                    await connection.execute(f"INSERT INTO {GENERIC_TABLE} VALUES ($1, $2)", key, value)
        await connection.close()


@pytest.fixture(params=["sqlite", "slot", "notify"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Keeping:
    if request.param == "sqlite":
        found = Keeping(f"sqlite:{tmp_path / 'twip.db'}", "sqlite")
    else:
        dsn = cast("Postgres", request.getfixturevalue("postgres")).dsn("postgres")
        await clear(dsn)
        found = Keeping(dsn, request.param)
    assert f"CREATE TABLE IF NOT EXISTS {GENERIC_TABLE}" in await asyncio.to_thread(found.run, "install")
    return found


@asynccontextmanager
async def serving(place: Keeping) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    config = ServerConfig(listen="127.0.0.1:0", joins=JOIN, backing_mode="write-through", **place.settings)  # type: ignore[arg-type]
    server = PequodServer(config)
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


def drawn(rng: random.Random) -> tuple[bytes, bytes | None]:
    """Return a change of a key: any bytes behind the table, also those that no text has."""
    key = rng.choice([b"p|", b"s|", b"q|"]) + bytes(rng.choices(b"|}a\x00\xff\x80\xc3'\\", k=rng.randrange(4)))
    return key, rng.choice([None, b"", rng.randbytes(9)])


async def test_any_bytes_are_keys_and_values_and_sort_as_bytes(place: Keeping) -> None:
    assert "ok: <key> <- pequod_base" in await asyncio.to_thread(place.run, "check")
    rng, rows = random.Random(5), dict[bytes, bytes | None]()
    async with serving(place) as (server, client):
        assert server.loader is not None
        for _ in range(12):
            changes = [drawn(rng) for _ in range(30)]
            if rng.random() < 0.5:
                await place.write(changes)
                rows.update(changes)
            else:
                mine = [change for change in changes if not change[0].startswith(b"q|")]
                batch = client.batch()
                for key, value in mine:
                    batch.remove(key) if value is None else batch.put(key, value)
                assert [one for one in await batch.send() if isinstance(one, PequodError)] == []
                rows.update(mine)
            await server.loader.caught_up()
            for table in (b"p", b"s"):
                first, last = sorted([drawn(rng)[0][2:], drawn(rng)[0][2:]])
                for bounds in ((table + b"|", table + b"}"), (table + b"|" + first, table + b"|" + last)):
                    present = sorted((key, value) for key, value in rows.items() if value is not None)
                    expected = [row for row in present if KeyRange(*bounds).holds(row[0])]
                    assert list(await client.scan(*bounds)) == expected
            server.engine.forget(*rng.choice([(b"p|", b"p}"), (b"p|\x80", b"p|a"), (b"", None)]))
        # Of what other tables have, nothing is told.
        assert list(await client.scan("q|", "q}")) == []


async def test_base_data_survives_the_server_and_joins_follow_it(place: Keeping) -> None:
    async with serving(place) as (_, client):
        await client.put("s|ann|bob", "")
        await client.put("p|bob|0100", b"\xff\x00")
        assert list(await client.scan("t|ann|", "t|ann}")) == [(b"t|ann|0100|bob", b"\xff\x00")]
    async with serving(place) as (server, client):
        assert list(await client.scan("t|ann|", "t|ann}")) == [(b"t|ann|0100|bob", b"\xff\x00")]
        await place.write([(b"p|bob|0100", None), (b"p|bob|0200", b"hi"), (b"q|zoe", b"another table")])
        assert server.loader is not None
        await server.loader.caught_up()
        assert list(await client.scan("t|ann|", "t|ann}")) == [(b"t|ann|0200|bob", b"hi")]
        assert server.loader.status.unpackable_count == 0
        large = b"p|" + bytes(random.Random(1).choices(range(256), k=4_000))
        if place.feed == "sqlite":
            await client.put(large, b"")
        else:
            # An index of PostgreSQL takes no such key.
            with pytest.raises(PequodError, match="index row"):
                await client.put(large, b"")
        assert await client.get("p|bob|0200") == b"hi"


async def test_whole_tables_are_read_again_after_their_table_was_emptied(place: Keeping) -> None:
    async with serving(place) as (server, client):
        await client.put("p|bob|0100", b"hi")
        await client.put("elsewhere", b"not the database's")
        assert len(await client.scan("p|", "p}")) == 1
        if place.feed == "sqlite":
            with closing(sqlite3.connect(place.backing.removeprefix("sqlite:"))) as file, file:
                file.execute(f"DELETE FROM {GENERIC_TABLE}")
        else:
            connection = await asyncpg.connect(place.backing)
            await connection.execute(f"TRUNCATE {GENERIC_TABLE}")
            await connection.close()
        assert server.loader is not None
        await server.loader.caught_up()
        assert len(await client.scan("p|", "p}")) == 0
        assert await client.get("elsewhere") == b"not the database's"


async def test_a_text_is_no_key_in_sqlite(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "twip.db", [Mapping.generic([b"p"])])
    await store.install()
    with closing(sqlite3.connect(tmp_path / "twip.db")) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(f"INSERT INTO {GENERIC_TABLE} (key, value) VALUES ('p|bob', x'00')")
    await store.close()


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text("[[mapping]]\nkeys = 'p|<a>'\ntable = 'x'\n")
    with pytest.raises(SettingError, match="backing install --generic"):
        make_store(ServerConfig(backing="sqlite:x"))
    with pytest.raises(SettingError, match="either"):
        make_store(ServerConfig(backing="sqlite:x", backing_mapping=mapping, backing_tables="p"))
    with pytest.raises(SettingError, match="mapping"):
        make_store(ServerConfig(backing="lake:x", backing_tables="p"))
    for arguments in (["--generic", str(mapping), "sqlite:x"], ["sqlite:x"], ["--generic", "lake:x"]):
        result = CliRunner().invoke(app, ["backing", "install", *arguments])
        assert result.exit_code == 2, arguments


async def test_a_server_whose_table_is_missing_says_how_to_make_it(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    store = make_store(ServerConfig(backing=f"sqlite:{tmp_path / 'empty.db'}", backing_tables="p"))
    assert store is not None
    with pytest.raises((PequodError, BackingUnavailableError), match="there is no table pequod_base"):
        await store.check()
    await store.close()
    with pytest.raises(BackingUnavailableError):
        postgres = PostgresStore("postgresql://nobody@127.0.0.1:1/none", [Mapping.generic([b"p"])])
        await postgres.install()


async def test_a_transaction_over_any_bytes_is_one_of_the_database(place: Keeping) -> None:
    async with serving(place) as (server, client):
        one, two = b"p|\x00\xff|'", b"p|\xff"
        done = await client.transaction(
            [absent(one), value_of(two) != b"\xff"], [Put(one, b"\x00"), Put(two, b"9"), Scan(prefix=b"p|")]
        )
        assert done == (True, [None, None, ([one, two], [b"\x00", b"9"])])
        await place.write([(one, b"theirs")])
        done = await client.transaction([value_of(one) == b"\x00"], [Remove(two)], [Get(one), Remove(one)])
        assert done == (False, [b"theirs", True])
        assert server.loader is not None
        await server.loader.caught_up()
        assert await client.scan(prefix=b"p|") == [(two, b"9")]
