"""SQLite behind the cache, against a real file."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_server.backing import (
    BackingUnavailableError,
    KeyRange,
    PackError,
    Progress,
    RowChange,
    SchemaError,
    SqliteStore,
    WriteRefusedError,
    parse_mappings,
)

from tests.backing.feed import following, prefix, until

MAPPINGS = parse_mappings("""
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
where = "NOT hidden"

[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
value = ["since", "note"]
""")
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE posts (
    id INTEGER PRIMARY KEY, poster TEXT, at INTEGER, body TEXT, hidden INTEGER DEFAULT 0, UNIQUE (poster, at)
);
CREATE TABLE subscriptions (user TEXT, poster TEXT, since INTEGER, note TEXT, PRIMARY KEY (user, poster));
"""
EVERYTHING = KeyRange(b"", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with_schema(tmp_path / "twip.db")
    return tmp_path / "twip.db"


def with_schema(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.close()


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def make(path: Path) -> SqliteStore:
    return SqliteStore(path, MAPPINGS)


async def installed(path: Path) -> SqliteStore:
    store = make(path)
    await store.install()
    return store


async def test_a_load_reads_many_ranges_of_many_patterns_at_one_moment(
    path: Path, database: sqlite3.Connection
) -> None:
    store = await installed(path)
    database.executemany(
        "INSERT INTO posts (poster, at, body, hidden) VALUES (?, ?, ?, ?)",
        [("bob", 100, "hi", 0), ("bob", 120, "again", 0), ("liz", 50, "early", 0), ("bob", 130, "secret", 1)],
    )
    database.execute("INSERT INTO subscriptions VALUES ('ann', 'bob', 7, NULL)")
    loaded = await store.load([*prefix("s|ann|"), KeyRange(b"p|bob|0100", b"p|bob|0120"), *prefix("p|liz|", "p|no|")])
    assert loaded.rows == (
        (b"p|bob|0100", b"hi"),
        (b"p|liz|0050", b"early"),
        (b"s|ann|bob", b'{"since":7,"note":null}'),
    )
    assert [key for key, _ in (await store.load([EVERYTHING])).rows] == [
        b"p|bob|0100", b"p|bob|0120", b"p|liz|0050", b"s|ann|bob",
    ]  # fmt: skip
    await store.close()


async def test_changes_of_every_kind_are_told(path: Path, database: sqlite3.Connection) -> None:
    store = await installed(path)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        for statement in (
            "INSERT INTO posts (id, poster, at, body) VALUES (1, 'bob', 1, 'a'), (2, 'bob', 2, 'b'), (3, 'z', 5, 'c')",
            "UPDATE posts SET body = 'changed' WHERE id = 1",
            "UPDATE posts SET at = 3 WHERE id = 2",
            "UPDATE posts SET hidden = 1 WHERE id = 1",
            "UPDATE posts SET hidden = 0 WHERE id = 1",
            # Deletes the old row of id 3 without firing its delete trigger.
            "INSERT OR REPLACE INTO posts (id, poster, at, body) VALUES (3, 'zoe', 6, 'd')",
            "UPDATE OR REPLACE posts SET id = 3 WHERE id = 2",
            "DELETE FROM posts",
        ):
            database.execute(statement)
            await follower.caught_up()
            assert follower.rows == dict((await store.load([EVERYTHING])).rows), statement
        assert follower.rows == {}
        assert follower.reloads == []


async def test_a_random_history_ends_with_what_the_database_has(path: Path, database: sqlite3.Connection) -> None:
    store = await installed(path)
    rng = random.Random(7)
    async with following(store) as follower:
        for _ in range(60):
            database.execute("BEGIN IMMEDIATE")
            for _ in range(rng.randrange(1, 5)):
                poster, at = rng.choice("abc"), rng.randrange(4)
                if rng.random() < 0.6:
                    database.execute(
                        "INSERT OR REPLACE INTO posts (poster, at, body) VALUES (?, ?, ?)",
                        (poster, at, str(rng.random())),
                    )
                else:
                    database.execute("DELETE FROM posts WHERE poster = ? AND at = ?", (poster, at))
            database.execute("COMMIT" if rng.random() < 0.8 else "ROLLBACK")
            if rng.random() < 0.3:
                await follower.load(*prefix(f"p|{rng.choice('abc')}|"))
        await follower.load(*prefix("p|a|", "p|b|", "p|c|"))
        await follower.caught_up()
        assert follower.rows == dict((await store.load([EVERYTHING])).rows)


async def test_a_feed_resumes_where_it_was(path: Path, database: sqlite3.Connection) -> None:
    first = await installed(path)
    async with following(first) as follower:
        database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, 'a')")
        await follower.caught_up()
        position = follower.position
    database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 2, 'b')")
    async with following(make(path), position, [EVERYTHING]) as follower:
        await follower.caught_up()
        assert follower.rows == {b"p|bob|0002": b"b"}
        assert follower.reloads == []


async def test_a_position_that_the_database_does_not_know_costs_a_reload(path: Path) -> None:
    async with following(await installed(path), 1000) as follower:
        await follower.until(lambda: bool(follower.reloads))
        assert follower.store.status.reload_count == 1


async def test_a_dropped_trigger_takes_the_feed_down_until_it_is_back(path: Path, database: sqlite3.Connection) -> None:
    store = await installed(path)
    async with following(store) as follower:
        await follower.load(*prefix("p|bob|"))
        trigger = f"pequod_{MAPPINGS[0].identity}_insert"
        database.execute(f"DROP TRIGGER {trigger}")
        await until(lambda: store.status.state == "down" and trigger in store.status.error)
        database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, 'missed')")
        await store.install()
        await follower.until(lambda: follower.rows == {b"p|bob|0001": b"missed"})
        assert len(follower.reloads) == 1
        await until(lambda: store.status.state == "ok")
        database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 2, 'told')")
        await follower.until(lambda: follower.rows[b"p|bob|0002"] == b"told" if len(follower.rows) == 2 else False)


async def test_a_replaced_file_is_read_again(path: Path, tmp_path: Path, database: sqlite3.Connection) -> None:
    other = tmp_path / "other.db"
    with_schema(other)
    connection = sqlite3.connect(other, isolation_level=None)
    connection.execute("INSERT INTO posts (poster, at, body) VALUES ('liz', 1, 'other')")
    connection.close()
    other_store = await installed(other)
    await other_store.close()
    store = await installed(path)
    database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, 'here')")
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        assert list(follower.rows) == [b"p|bob|0001"]
        path.with_name("twip.db-wal").unlink()
        path.with_name("twip.db-shm").unlink()
        other.replace(path)
        await follower.until(lambda: list(follower.rows) == [b"p|liz|0001"])
        assert follower.reloads == ["the file has been replaced"]


async def test_writes_go_through_in_one_transaction(path: Path, database: sqlite3.Connection) -> None:
    store = await installed(path)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        position, _ = await store.write(
            [
                RowChange(b"p|bob|0100", b"hi"),
                RowChange(b"p|bob|0100", b"hi again"),
                RowChange(b"s|ann|bob", b'{"note": "x", "since": 3}'),
                RowChange(b"p|nobody|0001", None),
            ]
        )
        await follower.until(lambda: follower.position >= position.position)
        assert follower.rows == {b"p|bob|0100": b"hi again", b"s|ann|bob": b'{"since":3,"note":"x"}'}
        await store.write([RowChange(b"s|ann|bob", None)])
        assert database.execute("SELECT count(*) FROM subscriptions").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (RowChange(b"q|x", b""), PackError, "no mapped pattern"),
        (RowChange(b"p|bob|01x0", b""), PackError, "no mapped pattern"),
        (RowChange(b"p|bob|0100", b"\xff"), PackError, "UTF-8"),
        (RowChange(b"s|ann|bob", b"[]"), PackError, "JSON object with exactly the members since, note"),
        (RowChange(b"p|hid|0100", b"x"), WriteRefusedError, "would not meet the condition"),
        (RowChange(b"p|bad|0100", b"x"), WriteRefusedError, "no bad posts"),
    ],
)
async def test_a_write_that_is_refused_changes_nothing(
    path: Path, database: sqlite3.Connection, change: RowChange, error: type[Exception], reason: str
) -> None:
    database.executescript(
        "CREATE TRIGGER hide AFTER INSERT ON posts WHEN NEW.poster = 'hid' BEGIN UPDATE posts SET hidden = 1; END;"
        "CREATE TRIGGER bad AFTER INSERT ON posts WHEN NEW.poster = 'bad' "
        "BEGIN SELECT RAISE(ABORT, 'no bad posts'); END;"
    )
    store = await installed(path)
    with pytest.raises(error, match=reason):
        await store.write([RowChange(b"p|bob|0001", b"first"), change])
    assert (await store.load([EVERYTHING])).rows == ()
    await store.close()


async def test_rows_without_a_key_are_left_out_and_counted(path: Path, database: sqlite3.Connection) -> None:
    store = await installed(path)
    database.execute("INSERT INTO posts (poster, at) VALUES ('b|b', 1), ('ok', 2), (NULL, 3), ('x', 12345), (x'00', 1)")
    assert (await store.load([EVERYTHING])).rows == ((b"p|ok|0002", b""),)
    assert store.status.unpackable_count == 4
    assert "of posts" in store.status.unpackable
    await store.close()


async def test_check_says_everything_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE posts (poster INTEGER, at TEXT, body TEXT); CREATE TABLE t (a TEXT, u TEXT)")
    connection.close()
    mappings = parse_mappings("""
        [[mapping]]
        keys = "p|<poster>|<time:4>"
        table = "posts"
        slots.time = { column = "at", type = "integer" }
        value = "text"
        [[mapping]]
        keys = "n|<a>"
        table = "nowhere"
        [[mapping]]
        keys = "u|<u>"
        table = "t"
        slots.u = { type = "uuid" }
        [[mapping]]
        keys = "a|<a>"
        table = "t"
        [[mapping]]
        keys = "c|<a>"
        table = "t"
        where = "b = 1"
    """)
    store = SqliteStore(path, mappings)
    with pytest.raises(SchemaError) as refused:
        await store.check()
    text = str(refused.value)
    for part in (
        "posts has no column text",
        "posts.poster is declared INTEGER",
        "posts.at is declared TEXT",
        "no table nowhere",
        "SQLite has no type uuid",
        "could have one key of a|<a>",
        "condition of c|<a> is not right: no such column: b",
    ):
        assert part in text, text
    await store.close()


async def test_check_advises_and_asks_for_triggers(path: Path, database: sqlite3.Connection) -> None:
    store = make(path)
    with pytest.raises(SchemaError, match="no table pequod_changes; run `pequod backing install`"):
        await store.check()
    await store.install()
    assert await store.check() == []
    assert await store.install() == await store.install()
    await store.close()


async def test_a_file_that_is_away_is_unavailable_and_healed_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "late.db"
    store = make(path)
    with pytest.raises(BackingUnavailableError, match=r"late\.db"):
        await store.load([EVERYTHING])
    assert not path.exists()
    events = store.changes()
    first = asyncio.ensure_future(anext(events))
    await until(lambda: store.status.state == "down")
    whole = tmp_path / "whole.db"
    with_schema(whole)
    await (await installed(whole)).close()
    whole.replace(path)
    async with asyncio.timeout(30):
        begun = await first
        assert isinstance(begun, Progress)
        assert begun.position == 0
    assert (await store.load([EVERYTHING])).rows == ()
    await store.close()
    async with asyncio.timeout(30):
        assert [event async for event in events] == []


async def test_an_index_answers_the_usual_ranges(path: Path, database: sqlite3.Connection) -> None:
    from pequod_server.backing.sql import boxes_of, select
    from pequod_server.backing.sqlite.dialect import SqliteDialect

    ranges = [KeyRange(b"p|bob|0100", b"p|bob|0200"), *prefix("p|liz|")]
    query = select(SqliteDialect(), MAPPINGS[0], boxes_of(MAPPINGS[0], ranges))
    assert query is not None
    plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query.text}", query.parameters)]
    assert sum("SEARCH posts USING INDEX" in step for step in plan) == 2, plan
    assert not any("SCAN posts" in step for step in plan), plan
