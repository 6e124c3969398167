"""Writes through to PostgreSQL, how columns become keys, and what `check` says of tables that do not fit."""

from __future__ import annotations

import random

import asyncpg
import pytest
from pequod_server.backing import (
    KeyRange,
    MappingError,
    PackError,
    RowChange,
    SchemaError,
    WriteRefusedError,
    parse_mappings,
)
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.conftest import Connection, Mode
from tests.backing.feed import following
from tests.backing.postgres_stores import EVERYTHING, MAPPINGS, content, installed, make


async def test_writes_go_through_in_one_transaction(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        position, _ = await store.write(
            [
                RowChange(b"p|bob|0100", b"hi"),
                RowChange(b"p|bob|0100", b"hi again"),
                RowChange(b"s|ann|bob", b'{"ok": true, "since": "2001-09-09 01:46:40+00", "score": 2}'),
                RowChange(b"p|nobody|0001", None),
            ]
        )
        await follower.until(lambda: follower.position >= position.position)
        assert follower.rows == {
            b"p|bob|0100": b"hi again",
            b"s|ann|bob": b'{"since":"2001-09-09T01:46:40+00:00","score":2,"ok":true}',
        }
        await store.write([RowChange(b"s|ann|bob", None)])
        assert await database.fetchval("SELECT count(*) FROM subscriptions") == 0


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (RowChange(b"q|x", b""), PackError, "no mapped pattern"),
        (RowChange(b"p|bob|0100", b"\xff"), PackError, "UTF-8"),
        (RowChange(b"p|bad|0100", b"x"), WriteRefusedError, "violates check constraint"),
        (RowChange(b"p|hid|0100", b"x"), WriteRefusedError, "would not meet the condition"),
        (RowChange(b"s|ann|bob", b'{"ok": 1, "since": "then", "score": 2}'), WriteRefusedError, "then"),
    ],
)
async def test_a_write_that_is_refused_changes_nothing(
    dsn: str, database: Connection, change: RowChange, error: type[Exception], reason: str
) -> None:
    await database.execute("""
        ALTER TABLE posts ADD CHECK (poster <> 'bad');
        CREATE FUNCTION hide() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN NEW.hidden := NEW.poster = ''hid''; RETURN NEW; END';
        CREATE TRIGGER hide BEFORE INSERT ON posts FOR EACH ROW EXECUTE FUNCTION hide();
    """)
    store = await installed(dsn, "notify")
    with pytest.raises(error, match=reason):
        await store.write([RowChange(b"p|bob|0001", b"first"), change])
    assert await content(store) == {}
    await store.close()


async def test_times_and_uuids_and_numbers_are_packed_as_the_mapping_says(dsn: str, mode: Mode) -> None:
    database = await asyncpg.connect(dsn)
    await database.execute("CREATE TABLE e (id uuid, t timestamptz, n int, b bytea, PRIMARY KEY (id, t, n))")
    mappings = parse_mappings("""
        [[mapping]]
        keys = "e|<n>|<t:16>|<id>"
        table = "e"
        slots.n = { type = "integer" }
        slots.t = { type = "timestamp_us" }
        slots.id = { type = "uuid" }
        value = "b"
    """)
    store = await installed(dsn, mode, mappings)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute("""
            INSERT INTO e SELECT ('00000000-0000-0000-0000-00000000000' || i)::uuid,
                '2001-09-09 01:46:40'::timestamptz AT TIME ZONE 'UTC' + n * '0.25 s'::interval, n, '\\x00ff'
            FROM generate_series(0, 2) i, generate_series(-1, 10) n
        """)
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.rows) == 36
        keys = sorted(follower.rows)
        assert keys[0].startswith(b"e|-1|09999999997")
        assert set(follower.rows.values()) == {b"\x00\xff"}
        for first, last in [
            (keys[3], keys[9]),
            (b"e|1|", b"e|2|1000000000250000|00000000-0000-0000-0000-000000000001"),
        ]:
            loaded = await store.load([KeyRange(first, last)])
            assert [key for key, _ in loaded.rows] == [key for key in keys if first <= key < last]
    await database.close()


async def test_random_ranges_select_what_filtering_by_key_gives(dsn: str) -> None:
    """The collation of the column is none that sorts by bytes."""
    database = await asyncpg.connect(dsn)
    await database.execute('CREATE TABLE things (a text COLLATE "en-x-icu", n bigint, b text)')
    rng = random.Random(11)
    letters = "abAB{}~é\ue000\U0010ffff-"
    rows = [("".join(rng.choices(letters, k=rng.randrange(1, 4))), n % 7, "x") for n in range(300)]
    await database.copy_records_to_table("things", records=rows)
    mappings = parse_mappings("""
        [[mapping]]
        keys = "p|<a>|<n:2>"
        table = "things"
        slots.n = { type = "integer" }
        value = "b"
        unique = false
    """)
    store = make(dsn, "slot", mappings)
    keys = sorted({f"p|{a}|{n:02}".encode() for a, n, _ in rows})
    for _ in range(150):
        bounds = [rng.choice(keys) + rng.choice([b"", b"\x00", b"}"]) for _ in range(2)]
        bounds = [bound[: rng.randrange(2, len(bound) + 1)] for bound in bounds]
        first, last = min(bounds), max(bounds)
        loaded = await store.load([KeyRange(first, last)])
        assert [key for key, _ in loaded.rows] == [key for key in keys if first <= key < last], (first, last)
    await store.close()
    await database.close()


async def test_check_says_everything_that_does_not_fit(dsn: str, database: Connection, mode: Mode) -> None:
    await database.execute("CREATE TABLE t (a text, c char(4), u text)")
    mappings = parse_mappings("""
        [[mapping]]
        keys = "p|<poster>|<time:4>"
        table = "posts"
        slots.time = { column = "body", type = "integer" }
        value = "text"
        [[mapping]]
        keys = "n|<a>"
        table = "nowhere"
        [[mapping]]
        keys = "u|<u>"
        table = "t"
        slots.u = { type = "uuid" }
        [[mapping]]
        keys = "c|<c:4>"
        table = "t"
        [[mapping]]
        keys = "a|<a>"
        table = "t"
        unique = false
        where = "b = 1"
    """)
    store = make(dsn, mode, mappings)
    with pytest.raises(SchemaError) as refused:
        await store.check()
    text = str(refused.value)
    for part in (
        "posts has no column text",
        "posts.body is of type text, and the slot <time:4>",
        "no table nowhere",
        "t.u is of type text, and the slot <u> of u|<u> needs uuid",
        "t.c is of type bpchar",
        "could have one key of u|<u>",
        'condition of a|<a> is not right: column "b" does not exist',
    ):
        assert part in text, text
    await store.close()


async def test_check_asks_for_what_is_not_installed(dsn: str, database: Connection, mode: Mode) -> None:
    store = make(dsn, mode)
    with pytest.raises(SchemaError, match="run `pequod backing install`"):
        await store.check()
    await store.install()
    assert await store.check() == []
    await store.install()
    assert await store.check() == []
    await store.close()
    with pytest.raises(MappingError, match="small letters"):
        PostgresStore(dsn, MAPPINGS, feed_name="Robert'); DROP")
