"""Joins over the fields of a database's rows, by the command line, against what SQL says over the same rows."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.forked import started_server

MAPPING = """
[[mapping]]
keys = "article|<id>"
table = "articles"
value = ["author", "title", "votes"]

# The same rows by another key: reads of an author load his articles alone.
[[mapping]]
keys = "written|<author>|<id>"
table = "articles"
value = ["title", "votes"]

[[mapping]]
keys = "item|<id>"
table = "items"
value = ["name", "price", "stock", "status", "visible", "category"]

[[mapping]]
keys = "post|<id>"
table = "posts"
value = "doc"

[[mapping]]
keys = "order|<id>"
table = "orders"
value = ["region", "day", "amount"]

[[mapping]]
keys = "review|<id>"
table = "reviews"
value = ["item", "date", "subject", "rating"]
"""
TABLES = (
    "CREATE TABLE articles (id text PRIMARY KEY, author text, title text, votes int)",
    (
        "CREATE TABLE items (id text PRIMARY KEY, name text, price int, stock int, status text, visible boolean, "
        "category text)"
    ),
    "CREATE TABLE posts (id text PRIMARY KEY, doc text)",
    "CREATE TABLE orders (id text PRIMARY KEY, region text, day text, amount int)",
    "CREATE TABLE reviews (id text PRIMARY KEY, item text, date text, subject text, rating int)",
    "INSERT INTO articles VALUES ('1', 'bob', 'Hi', 3), ('2', 'ann', 'Ho', NULL), ('3', 'bob', 'Ha', 1)",
    (
        "INSERT INTO items VALUES ('tea', 'Tea', 4, 3, 'open', true, 'drinks'), ('rum', 'Rum', 25, 1, 'open', false, "
        "'drinks'), ('cup', 'Cup', 7, 0, 'open', true, 'tools'), ('pan', 'Pan', 12, 2, 'shut', true, 'tools')"
    ),
    """INSERT INTO posts VALUES ('a', '{"tags": ["red", "new", "red"], "time": 7}'), ('b', 'text'),
       ('c', '{"tags": ["new"], "time": 1760000000}')""",
    "INSERT INTO orders VALUES ('1', 'eu', '2026-11-21', 10), ('2', 'eu', '2026-11-21', 5)",
    "INSERT INTO orders VALUES ('3', 'us', '2026-11-22', 1)",
    "INSERT INTO reviews VALUES ('1', 'tea', 'd1', 'good', 5), ('2', 'rum', 'd1', 'bad', 1), ('3', 'tea', 'd2', '', 3)",
    "INSERT INTO reviews VALUES ('4', 'jam', 'd1', 'fine', 4), ('5', 'pan', 'd1', '', 2)",
)
CHANGES = (
    "UPDATE articles SET author = 'liz' WHERE id = '3'",
    "UPDATE articles SET author = NULL WHERE id = '2'",
    "INSERT INTO articles VALUES ('4', 'bob', 'He', 9)",
    "UPDATE items SET stock = 5, visible = false WHERE id = 'cup'",
    "UPDATE items SET visible = true, price = 19 WHERE id = 'rum'",
    """UPDATE posts SET doc = '{"tags": ["old"], "time": 8}' WHERE id = 'a'""",
    "UPDATE orders SET region = 'us', day = '2026-11-22' WHERE id = '1'",
    "DELETE FROM orders WHERE id = '3'",
    "INSERT INTO items VALUES ('jam', 'Jam', 2, 0, 'shut', false, 'food')",
    "DELETE FROM items WHERE id = 'pan'",
    "DELETE FROM reviews WHERE id = '1'",
    "UPDATE reviews SET date = 'd0' WHERE id = '3'",
)
#: One of each kind, and the examples of PNUTS §4: an index, an equijoin, a selection, aggregates of groups. Then joins
#: with columns of both sides, inner and left outer.
JOINS = """
    by_author|<author>|<id> = copy article|<id> with author = <author> as {title, votes};
    cheap|<price:8>|<id> = copy item|<id> with price = <price:8>, stock > 0, status = "open" as {name, price};
    tagged|<tag>|<time:10>|<id> = copy post|<id> with tags[] = <tag>, time = <time:10> as time;
    revenue|<region>|<day:10> = sum order|<id> with region = <region>, day = <day:10> as amount;
    reviews|<item>|<date>|<id> = check item|<item> with visible = true
                                 copy review|<id> with item = <item>, date = <date> as {subject, rating};
    by_price|<price:i64>|<id> = copy item|<id> with price = <price> as name;
    open|<id> = copy item|<id> with status = "open" as name;
    number|<category> = count item|<id> with category = <category>;
    worth|<category> = sum item|<id> with category = <category> as price;
    named|<item>|<id> = copy review|<id> with item = <item> as {rating} check item|<item> with visible = true as {name};
    priced|<item>|<id> = copy review|<id> with item = <item> as {rating} check? item|<item> as {name, price};
"""
Rows = Sequence[Sequence[object]]
Query = Callable[[str], Rows]


def expected(query: Query) -> dict[str, dict[str, str]]:
    """Return what SQL says, by the table of a join."""

    def shown(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    posts = [(key, json.loads(str(doc))) for key, doc in query("SELECT id, doc FROM posts WHERE doc <> 'text'")]
    visible = "SELECT id FROM items WHERE visible"
    return {
        "by_author": {
            f"by_author|{author}|{key}": shown({"title": title, "votes": votes})
            for key, author, title, votes in query("SELECT * FROM articles WHERE author IS NOT NULL")
        },
        "written|bob": {
            f"written|bob|{key}": shown({"title": title, "votes": votes})
            for key, title, votes in query("SELECT id, title, votes FROM articles WHERE author = 'bob'")
        },
        "cheap": {
            f"cheap|{price:0>8}|{key}": shown({"name": name, "price": price})
            for key, name, price in query("SELECT id, name, price FROM items WHERE stock > 0 AND status = 'open'")
        },
        "tagged": {
            f"tagged|{tag}|{doc['time']:0>10}|{key}": str(doc["time"]) for key, doc in posts for tag in doc["tags"]
        },
        "revenue": {
            f"revenue|{region}|{day}": str(amount)
            for region, day, amount in query("SELECT region, day, sum(amount) FROM orders GROUP BY region, day")
        },
        "reviews": {
            f"reviews|{item}|{date}|{key}": shown({"subject": subject, "rating": rating})
            for key, item, date, subject, rating in query(f"SELECT * FROM reviews WHERE item IN ({visible})")
        },
        "by_price": {
            f"by_price|{int(str(price)) + 2**63:x}|{key}": str(name)
            for key, price, name in query("SELECT id, price, name FROM items")
        },
        "open": {f"open|{key}": str(name) for key, name in query("SELECT id, name FROM items WHERE status = 'open'")},
        "number": {
            f"number|{category}": str(count)
            for category, count in query("SELECT category, count(*) FROM items GROUP BY category")
        },
        "named": {
            f"named|{item}|{key}": shown({"rating": rating, "name": name})
            for item, key, rating, name in query(
                f"SELECT item, r.id, rating, name FROM reviews r JOIN items i ON i.id = item WHERE i.id IN ({visible})"
            )
        },
        "priced": {
            f"priced|{item}|{key}": shown({"rating": rating, "name": name, "price": price})
            for item, key, rating, name, price in query(
                "SELECT item, r.id, rating, name, price FROM reviews r LEFT JOIN items i ON i.id = item"
            )
        },
        "worth": {
            f"worth|{category}": str(price)
            for category, price in query("SELECT category, sum(price) FROM items GROUP BY category")
        },
    }


def invoke(*arguments: str) -> str:
    """Run a command in a thread of its own, as it has an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(CliRunner().invoke, app, arguments, prog_name="pequod").result()
    assert result.exit_code == 0, result.output
    return result.stdout


def scan(target: str, table: str) -> dict[str, str]:
    """Return the rows of a table, at least as new as the database is now."""
    lines = invoke("scan", "--prefix", f"{table}|", "--target", target, "--latest", "--wait", "20s", "--json")
    return {row["key"]: row["value"] for row in map(json.loads, lines.splitlines())}


def compare(url: str, file: Path, query: Query, execute: Callable[[str], object], joins: str) -> None:
    """Read all joins before and after changes of the database, and compare them with SQL each time."""
    invoke("backing", "install", str(file), url)
    with started_server("--backing", url, "--backing-mapping", str(file)) as (target, _):
        invoke("join", "add", joins, "--target", target)
        for changes in ((), CHANGES):
            for change in changes:
                execute(change)
            for table, rows in expected(query).items():
                assert scan(target, table) == rows, table
        assert "by_author|<author>|<id>" in invoke("join", "explain", "by_author", "--target", target)
        rows_file = file.with_suffix(".jsonl")
        invoke("dump", "", "--output", str(rows_file), "--target", target)
    compare_without_database(rows_file, query, joins)


def compare_without_database(rows_file: Path, query: Query, joins: str) -> None:
    """Do the same with a server that clients write the same rows to."""
    base = re.compile(r'{"key": ?"(article|written|item|post|order|review)\|')
    lines = [line for line in rows_file.read_text().splitlines(keepends=True) if base.match(line)]
    assert lines
    rows_file.write_text("".join(lines))
    with started_server() as (target, _):
        invoke("join", "add", joins, "--target", target)
        invoke("load", str(rows_file), "--target", target)
        for table, rows in expected(query).items():
            assert scan(target, table) == rows, table


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(MAPPING)
    return path


def test_joins_over_rows_of_sqlite_say_what_sql_says(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in TABLES:
            connection.execute(statement)
        # SQLite has no booleans: they are numbers there.
        joins = JOINS.replace("visible = true", "visible = 1")
        compare(f"sqlite:{path}", file, lambda text: connection.execute(text).fetchall(), connection.execute, joins)


async def test_joins_over_rows_of_postgresql_say_what_sql_says(file: Path, dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in TABLES:
        await connection.execute(statement)
    loop = asyncio.get_running_loop()

    def query(text: str) -> Rows:
        return [tuple(row) for row in asyncio.run_coroutine_threadsafe(connection.fetch(text), loop).result()]

    def execute(text: str) -> object:
        return asyncio.run_coroutine_threadsafe(connection.execute(text), loop).result()

    try:
        await asyncio.to_thread(compare, dsn, file, query, execute, JOINS)
    finally:
        await connection.close()
