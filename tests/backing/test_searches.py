"""Joins by fields that are columns: reads load the rows that they need alone, and show what was committed."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import BackingStore, MappingError, SchemaError, SqliteStore, parse_mappings
from pequod_server.backing.searches import columns_of
from pequod_server.backing.sql import select
from pequod_server.backing.sqlite.dialect import SqliteDialect
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import AsyncClient
from pequod.engine import Engine, MissingError
from pequod.language.numbers import encode_i64
from tests.backing.conftest import Connection, Mode
from tests.backing.postgres_stores import installed

MAPPING = """
[[mapping]]
keys = "article|<key>"
slots.key = "id"
table = "articles"
value = ["author", "price", "title"]
fields = { author = "text", price = "integer" }
"""
MAPPINGS = parse_mappings(MAPPING)
TABLE = "CREATE TABLE articles (id text PRIMARY KEY, author text, price int, title text)"
JOINS = """
by_author|<author>|<id> = copy article|<id> with author = <author> as title;
cheap|<price:4>|<author>|<id> = copy article|<id> with price = <price:4>, author = <author> as title;
by_price|<price:i64>|<id> = copy article|<id> with price = <price> as title;
number|<author> = count article|<id> with author = <author>;
feed|<user>|<id>|<author> = check follow|<user>|<author> copy article|<id> with author = <author> as title;
first|<price:4> = pull min article|<id> with price = <price:4> as title;
"""
FOLLOWED = ("ann", "bob")
Row = tuple[str | None, int | None, str]
Execute = Callable[[str], Awaitable[object]]


def expected(rows: dict[str, Row]) -> dict[str, str]:
    """Return all rows of all joins."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    number: dict[str, int] = {}
    for key, (author, price, title) in sorted(rows.items()):
        if author is not None:
            found[f"by_author|{author}|{key}"] = title
            number[author] = number.get(author, 0) + 1
            if author in FOLLOWED:
                found[f"feed|ann|{key}|{author}"] = title
        if price is not None:
            found[f"by_price|{encode_i64(price)}|{key}"] = title
            if 0 <= price < 10_000:
                first[f"{price:04d}"] = min(title, first.get(f"{price:04d}", title))
                if author is not None:
                    found[f"cheap|{price:04d}|{author}|{key}"] = title
    found |= {f"number|{author}": str(count) for author, count in number.items()}
    return found | {f"first|{price}": title for price, title in first.items()}


@asynccontextmanager
async def serving(
    store: BackingStore, snapshot_file: Path | None = None
) -> AsyncIterator[tuple[PequodServer, AsyncClient]]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=JOINS, snapshot_file=snapshot_file), store=store)
    try:
        async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
            for author in FOLLOWED:
                await client.put(f"follow|ann|{author}", "")
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[tuple[BackingStore, Execute]]:
    path = folder / "articles.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"{TABLE} STRICT")
        store = SqliteStore(str(path), MAPPINGS)
        await store.install()

        async def execute(statement: str) -> None:
            connection.execute(statement)

        yield store, execute


def literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


async def wander(store: BackingStore, execute: Execute, seed: int) -> None:
    """Change rows and read ranges, many times; in between rows are evicted, or loaded by their keys."""
    dice = random.Random(seed)
    rows: dict[str, Row] = {}

    async def change() -> None:
        key = str(dice.randrange(12))
        row = (
            dice.choice(["ann", "bob", "bo", "é", None]),
            dice.choice([1, 2, 10, -1, 12_345, None]),
            dice.choice("xyz"),
        )
        if key in rows and dice.random() < 0.3:
            del rows[key]
            await execute(f"DELETE FROM articles WHERE id = '{key}'")
            return
        await execute(
            f"INSERT INTO articles VALUES ('{key}', {', '.join(map(literal, row))}) "
            "ON CONFLICT (id) DO UPDATE SET author = excluded.author, price = excluded.price, title = excluded.title"
        )
        rows[key] = row

    prefixes = [
        *("by_author|ann|", "by_author|bo|", "by_author|bob|", "by_author|é|", "by_author|b", "number|bob", "number|"),
        *("cheap|0001|", "cheap|0010|bo|", "cheap|00", f"by_price|{encode_i64(-1)}|", "by_price|8", "first|0002"),
        *("feed|ann|", "feed|ann|1|", "article|1", "article|", "by_author|", "cheap|"),
    ]
    async with serving(store) as (server, client):
        for _ in range(60):
            for _ in range(dice.choice([0, 1, 1, 5])):
                await change()
            await server.databases.caught_up()
            if dice.random() < 0.3:
                server.engine.evict(dice.randrange(1, 6))
            if dice.random() < 0.05:
                server.engine.forget(b"article|3", b"article|4")
            prefix = dice.choice(prefixes[: dice.choice([len(prefixes), len(prefixes) - 3])])
            found = {key.decode(): value.decode() for key, value in await client.scan(prefix=prefix)}
            if prefix.startswith("article"):
                wanted = {
                    f"article|{key}": json.dumps(dict(zip(("author", "price", "title"), row, strict=True))).replace(
                        " ", ""
                    )
                    for key, row in rows.items()
                }
                wanted = {key: json.loads(value) for key, value in wanted.items() if key.startswith(prefix)}
                assert {key: json.loads(value) for key, value in found.items()} == wanted
            else:
                assert found == {key: value for key, value in expected(rows).items() if key.startswith(prefix)}
            server.engine._check()


@pytest.mark.parametrize("seed", range(6))
async def test_reads_by_fields_equal_what_is_committed_to_sqlite(tmp_path: Path, seed: int) -> None:
    async with sqlite(tmp_path) as (store, execute):
        await wander(store, execute, seed)


async def test_reads_by_fields_equal_what_is_committed_to_postgresql(
    dsn: str, database: Connection, mode: Mode
) -> None:
    await database.execute(TABLE)
    await wander(await installed(dsn, mode, MAPPINGS), database.execute, 1)


async def test_a_read_by_a_field_loads_its_rows_alone(tmp_path: Path) -> None:
    async with sqlite(tmp_path) as (store, execute):
        for number in range(100):
            author = "bob" if number < 3 else f"writer{number}"
            await execute(f"INSERT INTO articles VALUES ('{number}', '{author}', {number}, 'x')")
        async with serving(store) as (server, client):
            (loader,) = server.databases.all
            assert len(await client.scan(prefix="by_author|bob|")) == 3
            assert loader.counters.rows == 3
            assert await client.get("number|bob") == b"3"
            assert len(await client.scan(prefix="feed|ann|")) == 3
            assert loader.counters.rows == 3, "they are there, and that ann has none is all that is asked"
            await execute("UPDATE articles SET author = 'bob' WHERE id = '50'")
            await execute("UPDATE articles SET author = 'liz' WHERE id = '0'")
            await execute("UPDATE articles SET title = 'y' WHERE id = '60'")
            await loader.caught_up()
            assert [key for key, _ in await client.scan(prefix="by_author|bob|")] == [
                f"by_author|bob|{number}".encode() for number in (1, 2, 50)
            ]
            assert loader.counters.rows == 3, "changes tell it"
            assert server.engine.base_rows().keys == [b"follow|ann|ann", b"follow|ann|bob"], "no range is loaded"
            assert server.engine.evict(100) > 0
            assert len(server.engine._store.tables[b"article"].slice(b"article|", b"article}").keys) == 0


async def test_a_snapshot_leaves_out_what_was_searched_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with sqlite(tmp_path) as (store, execute):
        for number in range(10):
            author = "bob" if number < 3 else "liz"
            await execute(f"INSERT INTO articles VALUES ('{number}', '{author}', {number}, 'x')")
        async with serving(store, file) as (server, client):
            assert len(await client.scan(prefix="by_author|bob|")) == 3
            # This row is loaded by its key as well; 0 and 2 are there for the search alone.
            assert await client.get("article|1") is not None
        for change in ("author = 'liz' WHERE id = '0'", "author = 'bob' WHERE id = '7'", "title = 'y' WHERE id = '1'"):
            await execute(f"UPDATE articles SET {change}")
        async with serving(SqliteStore(str(tmp_path / "articles.db"), MAPPINGS), file) as (server, client):
            await server.databases.caught_up()
            assert server.engine._store.tables[b"article"].slice(b"article|", b"article}").keys == [b"article|1"]
            assert server.engine.loaded_range_count == 1
            assert dict(await client.scan(prefix="by_author|bob|")) == {
                b"by_author|bob|1": b"y",
                b"by_author|bob|2": b"x",
                b"by_author|bob|7": b"x",
            }
            (loader,) = server.databases.all
            assert loader.counters.rows == 3, "all of them are searched for"


def test_a_range_is_asked_for_by_the_columns_of_its_slots() -> None:
    engine = Engine(backed=[b"article"], can_search=lambda search: columns_of(MAPPINGS, search) is not None)
    engine.add_joins(parse(JOINS))
    with pytest.raises(MissingError) as caught:
        engine.scan(b"cheap|0007|bob|5", b"cheap|0007|bob}")
    (found,) = caught.value.searches
    columns = columns_of(MAPPINGS, found.search)
    assert columns is not None
    query = select(SqliteDialect(), columns.mapping, columns.boxes([found]), columns.slots)
    assert query is not None
    assert query.text.endswith(
        '"articles"."price" = box.a0 AND "articles"."author" = box.a1 AND "articles"."id" COLLATE BINARY >= box.a2'
    )
    assert query.parameters == ('[[7, "bob", "5"]]',)


@pytest.mark.parametrize(
    ("keys", "join", "fields"),
    [
        ("article|<key>", "t|<author>|<id> = copy article|<id> with author = <author>", ["author", "id"]),
        ("article|<key>", "t|<author>|<t>|<id> = copy article|<id> with author = <author>, title = <t>", ["author"]),
        ("article|<key>", "t|<title>|<id> = copy article|<id> with title = <title>", None),
        ("article|<key>", "t|<price:f64>|<id> = copy article|<id> with price = <price:f64>", None),
        ("article|<key>", "t|<x>|<id> = copy article|<id> with author.name = <x>", None),
        ("article|<key>", "t|<tag>|<id> = copy article|<id> with tags[] = <tag>", None),
        ("article|<key:16>", "t|<author>|<id:i64> = copy article|<id:i64> with author = <author>", None),
        ("article|<key>|<key>", "t|<author>|<a>|<b> = copy article|<a>|<b> with author = <author>", None),
    ],
)
def test_a_search_has_the_columns_up_to_the_first_slot_without_one(
    keys: str, join: str, fields: list[str] | None
) -> None:
    mappings = parse_mappings(MAPPING.replace("article|<key>", keys))
    engine = Engine(backed=[b"article"], can_search=lambda _: True)
    engine.add_joins(parse(join))
    with pytest.raises(MissingError) as caught:
        engine.scan(b"t|x000000000000000|", b"t|x000000000000000}")
    (found,) = caught.value.searches
    columns = columns_of(mappings, found.search)
    assert (None if columns is None else [slot.name for slot in columns.slots]) == fields


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('fields.body = "text"', "`fields` names 'body', which is no column of `value`"),
        ('fields.author = "float"', "'float' is no type for fields.author; there are text, integer, uuid"),
        ('fields = ["author"]', "`fields` is a table: fields.author = 'text'"),
    ],
)
def test_fields_that_cannot_be_asked_for_are_refused(line: str, message: str) -> None:
    text = MAPPING.replace('fields = { author = "text", price = "integer" }', line)
    with pytest.raises(MappingError, match=message):
        parse_mappings(text)


async def test_a_missing_index_is_named(tmp_path: Path, dsn: str, database: Connection) -> None:
    async with sqlite(tmp_path) as (store, execute):
        await execute("CREATE INDEX by_price ON articles (price)")
        advice = "no index on articles starts with author, so each search by this field reads the whole table: "
        advice += "CREATE INDEX ON "
        assert await store.check() == [f"{advice}articles (author)"]
        await store.close()
    await database.execute(f"{TABLE}; CREATE INDEX ON articles (price)")
    postgres = await installed(dsn, "notify", MAPPINGS)
    assert await postgres.check() == [f'{advice}"articles" ("author")']
    await postgres.close()


async def test_columns_that_do_not_keep_to_the_types_of_fields_are_refused(
    tmp_path: Path, dsn: str, database: Connection
) -> None:
    path = tmp_path / "loose.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE)
    with pytest.raises(SchemaError, match="declare articles STRICT"):
        await SqliteStore(str(path), MAPPINGS).install()
    await database.execute(TABLE.replace("price int", "price text"))
    with pytest.raises(SchemaError, match=r"articles.price is of type text, and fields.price of article|<key> needs"):
        await installed(dsn, "notify", MAPPINGS)


def test_the_command_line_shows_the_statement_of_a_join(tmp_path: Path) -> None:
    (tmp_path / "articles.toml").write_text(MAPPING)
    join = "by_author|<author>|<id> = copy article|<id> with author = <author> as title"
    arguments = [
        str(tmp_path / "articles.toml"),
        "by_author|bob|",
        "by_author|bob}",
        "--dialect",
        "sqlite",
        "--join",
        join,
    ]
    done = CliRunner().invoke(app, ["backing", "sql", *arguments])
    assert done.exit_code == 0, done.output
    assert '"articles"."author" = box.a0;' in done.output
    assert "-- $1 = '[[\"bob\"]]'" in done.output
