"""Tokens of connections of every driver, after their own commits."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg
import psycopg
import psycopg2
import pytest
from pequod_server.backing.mapping import parse_mappings
from pequod_server.backing.sqlite.store import SqliteStore
from psycopg.rows import dict_row
from psycopg2.extras import RealDictCursor

import pequod
from pequod.errors import SchemaError
from pequod.freshness import Token
from tests.backing.conftest import dsn, postgres

__all__ = ["dsn", "postgres"]

MAPPING = "[[mapping]]\nkeys = 'p|<user>'\ntable = 'post'\nvalue = 'text'"


def position(token: Token) -> int:
    ((_, position),) = token.positions.items()
    return position


async def test_all_drivers_give_tokens_of_one_history(dsn: str) -> None:
    tokens = []
    asynchronous = await asyncpg.connect(dsn)
    await asynchronous.execute("CREATE TABLE t (n int)")
    tokens.append(await pequod.token_of(asynchronous))
    with psycopg.connect(dsn, row_factory=dict_row) as waiting:
        waiting.execute("INSERT INTO t VALUES (1)")
        waiting.commit()
        tokens.append(pequod.token_of(waiting))
        assert waiting.info.transaction_status == 0
    old = psycopg2.connect(dsn, cursor_factory=RealDictCursor)
    old.cursor().execute("INSERT INTO t VALUES (2)")
    old.commit()
    tokens.append(pequod.token_of(old))
    assert old.get_transaction_status() == 0
    old.close()
    async with await psycopg.AsyncConnection.connect(dsn) as awaited:
        await awaited.execute("INSERT INTO t VALUES (3)")
        await awaited.commit()
        tokens.append(await pequod.token_of(awaited))
    async with asynchronous.transaction():
        await asynchronous.execute("INSERT INTO t VALUES (4)")
    tokens.append(await pequod.token_of(asynchronous))
    await asynchronous.close()
    assert len({mark for token in tokens for mark in token.positions}) == 1
    assert [position(token) for token in tokens] == sorted({position(token) for token in tokens}), "each is later"


async def test_a_pool_and_a_connection_that_commits_by_itself_give_tokens(dsn: str) -> None:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        one = await pequod.token_of(connection)
    with psycopg.connect(dsn, autocommit=True) as waiting:
        assert pequod.token_of(waiting).positions.keys() == one.positions.keys()


async def test_an_open_transaction_has_no_token(dsn: str) -> None:
    asynchronous = await asyncpg.connect(dsn)
    async with asynchronous.transaction():
        with pytest.raises(ValueError, match="commit it"):
            await pequod.token_of(asynchronous)
    await asynchronous.close()
    with psycopg.connect(dsn) as waiting:
        waiting.execute("SELECT 1")
        with pytest.raises(ValueError, match="commit it"):
            pequod.token_of(waiting)
    old = psycopg2.connect(dsn)
    old.cursor().execute("SELECT 1")
    with pytest.raises(ValueError, match="commit it"):
        pequod.token_of(old)
    old.close()


async def test_a_commit_that_does_not_wait_for_the_log_is_before_its_token(dsn: str) -> None:
    hasty = await asyncpg.connect(dsn, server_settings={"synchronous_commit": "off"})
    await hasty.execute("CREATE TABLE t (n int)")
    for number in range(20):
        await hasty.execute("INSERT INTO t VALUES ($1)", number)
        written = await hasty.fetchval("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        assert position(await pequod.token_of(hasty)) >= written
    await hasty.close()


async def test_any_user_of_the_database_gets_a_token(dsn: str) -> None:
    owner = await asyncpg.connect(dsn)
    await owner.execute("DROP ROLE IF EXISTS visitor")
    await owner.execute("CREATE ROLE visitor LOGIN")
    visitor = await asyncpg.connect(dsn, user="visitor")
    assert (await pequod.token_of(visitor)).positions.keys() == (await pequod.token_of(owner)).positions.keys()
    await visitor.close()
    await owner.execute("DROP ROLE visitor")
    await owner.close()


async def test_sqlite_has_a_token_once_pequod_is_installed(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "twip.db")
    connection.execute("CREATE TABLE post (user TEXT PRIMARY KEY, text TEXT)")
    connection.commit()
    with pytest.raises(SchemaError, match="pequod backing install"):
        pequod.token_of(connection)
    store = SqliteStore(tmp_path / "twip.db", parse_mappings(MAPPING))
    await store.install()
    before = pequod.token_of(connection)
    connection.row_factory = sqlite3.Row
    connection.execute("INSERT INTO post VALUES ('ann', 'hi')")
    with pytest.raises(ValueError, match="commit it"):
        pequod.token_of(connection)
    connection.commit()
    after = pequod.token_of(connection)
    assert after.positions.keys() == before.positions.keys()
    assert position(after) > position(before)
    assert not connection.in_transaction
    connection.close()
    await store.close()


def test_anything_else_is_no_connection() -> None:
    with pytest.raises(TypeError, match="NoneType is no connection"):
        pequod.token_of(None)  # type: ignore[call-overload]
