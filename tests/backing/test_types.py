"""Every common type of PostgreSQL as a field of a record and as a value: a load and both feeds give the same."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path

import asyncpg
import pytest
from pequod_server.backing import RowChange, SqliteStore, parse_mappings

from pequod.commands.kinds import ADD
from pequod.engine.naive_records import parse
from pequod.engine.transacting import NO_LIMITS
from pequod.errors import WriteRefusedError
from pequod.language.transactions import GREATER, CommandList, KeyCompare, Transaction
from tests.backing.conftest import Connection, Mode
from tests.backing.feed import following
from tests.backing.postgres_stores import EVERYTHING, content, installed

#: A type, a literal of it, and the JSON that a record has for it.
TYPES = [
    ("int2", "-7", "-7"),
    ("int4", "7", "7"),
    ("int8", "9223372036854775807", "9223372036854775807"),
    ("numeric", "12345678901234567890.12345678901234567890", "12345678901234567890.12345678901234567890"),
    ("numeric(9,2)", "1.5", "1.50"),
    ("numeric", "NaN", '"NaN"'),
    ("float8", "0.1", "0.1"),
    ("float8", "1e300", "1e+300"),
    ("float8", "NaN", '"NaN"'),
    ("float8", "-Infinity", '"-Infinity"'),
    ("float4", "0.1", "0.1"),
    ("bool", "yes", "true"),
    ("bool", "no", "false"),
    ("text", 'é "x" \\ {a,b} (c,d) NULL', json.dumps('é "x" \\ {a,b} (c,d) NULL', ensure_ascii=False)),
    ("text", "", '""'),
    ("varchar(3)", "abc", '"abc"'),
    ("char(3)", "a", '"a  "'),
    ("bytea", "\\x00ff", '"\\\\x00ff"'),
    ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("date", "2001-09-09", '"2001-09-09"'),
    ("time", "01:46:40.5", '"01:46:40.5"'),
    ("timetz", "01:46:40+02", '"01:46:40+02"'),
    ("timestamp", "2001-09-09 01:46:40", '"2001-09-09T01:46:40"'),
    ("timestamptz", "2001-09-09 03:46:40.25+02", '"2001-09-09T01:46:40.25+00:00"'),
    ("timestamptz", "infinity", '"infinity"'),
    ("timestamptz", "0044-03-15 00:00:00+00 BC", '"0044-03-15T00:00:00+00:00 BC"'),
    ("interval", "1 day 2 hours", '"1 day 02:00:00"'),
    ("json", '{"a": 1.50, "b": [1]}', '{"a": 1.50, "b": [1]}'),
    ("jsonb", '{"a":12345678901234567890.5}', '{"a": 12345678901234567890.5}'),
    ("inet", "10.0.0.1/8", '"10.0.0.1/8"'),
    ("money", "1.5", '"$1.50"'),
    ("bit(3)", "101", '"101"'),
    ("point", "(1,2)", '"(1,2)"'),
    ("tsvector", "red blue", "\"'blue' 'red'\""),
    ("int4range", "[1,5)", '"[1,5)"'),
    ("tstzrange", "[2001-09-09 00:00+00,)", '"[\\"2001-09-09 00:00:00+00\\",)"'),
    ("int4multirange", "{[1,3),[5,7)}", '"{[1,3),[5,7)}"'),
    ("int2vector", "1 2", '"1 2"'),
    ("mood", "so, so", '"so, so"'),
    ("positive", "7", "7"),
    ("tags", "{red,blue}", '["red","blue"]'),
    ("pair", '(7,"a ""b"", \\\\c",)', '{"n":7,"t":"a \\"b\\", \\\\c","at":null}'),
    ("pair", '(,"",2001-09-09 00:00)', '{"n":null,"t":"","at":"2001-09-09T00:00:00"}'),
    (
        "nested",
        '("(1,x,)","{""(2,y,)"",NULL}")',
        '{"one":{"n":1,"t":"x","at":null},"more":[{"n":2,"t":"y","at":null},null]}',
    ),
    ("int4[]", "{}", "[]"),
    ("int4[]", "{1,NULL,3}", "[1,null,3]"),
    ("int4[]", "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
    ("int4[]", "[0:1]={1,2}", "[1,2]"),
    ("int4[]", "[-1:0][2:3]={{1,2},{3,4}}", "[[1,2],[3,4]]"),
    ("numeric[]", "{1.50,NaN}", '[1.50,"NaN"]'),
    ("float8[]", "{0.1,Infinity}", '[0.1,"Infinity"]'),
    ("bool[]", "{t,f,NULL}", "[true,false,null]"),
    (
        "text[]",
        '{red,"a,b","NULL",NULL,null,"","q\\"q","b\\\\b","{}"," x "}',
        '["red","a,b","NULL",null,null,"","q\\"q","b\\\\b","{}"," x "]',
    ),
    ("bytea[]", '{"\\\\x00ff"}', '["\\\\x00ff"]'),
    ("uuid[]", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]'),
    ("date[]", "{2001-09-09}", '["2001-09-09"]'),
    ("time[]", "{01:46:40}", '["01:46:40"]'),
    ("timestamp[]", '{"2001-09-09 01:46:40"}', '["2001-09-09T01:46:40"]'),
    ("timestamptz[]", '{"2001-09-09 01:46:40+00",infinity}', '["2001-09-09T01:46:40+00:00","infinity"]'),
    ("interval[]", '{"1 day"}', '["1 day"]'),
    ("jsonb[]", '{"{\\"a\\": [1, 2]}",null}', '[{"a": [1, 2]},null]'),
    ("json[]", '{"{\\"a\\":1.50}"}', '[{"a":1.50}]'),
    ("box[]", "{(1,1),(0,0);(3,3),(2,2)}", '["(1,1),(0,0)","(3,3),(2,2)"]'),
    ("int4range[]", '{"[1,3)"}', '["[1,3)"]'),
    ("mood[]", '{"so, so",good}', '["so, so","good"]'),
    ("positive[]", "{1,2}", "[1,2]"),
    ("pair[]", '{"(7,\\"a b\\",)"}', '[{"n":7,"t":"a b","at":null}]'),
]
CREATE = """
CREATE TYPE mood AS ENUM ('good', 'so, so');
CREATE DOMAIN positive AS int4 CHECK (VALUE > 0);
CREATE DOMAIN tags AS text[];
CREATE TYPE pair AS (n int4, t text, at timestamp);
CREATE TYPE nested AS (one pair, more pair[]);
"""


def mappings_of(value: str) -> str:
    return f'[[mapping]]\nkeys = "r|<id>"\ntable = "rows"\nslots.id = {{ type = "integer" }}\nvalue = {value}\n'


async def made(dsn: str) -> Connection:
    """Return a connection to a database with a table of a column for each type, and the types of our own."""
    database = await asyncpg.connect(dsn)
    await database.execute("DROP TABLE IF EXISTS rows; DROP TYPE IF EXISTS mood, nested, pair, positive, tags CASCADE")
    await database.execute(CREATE)
    columns = ", ".join(f'"c{number}" {kind}' for number, (kind, _, _) in enumerate(TYPES))
    await database.execute(f"CREATE TABLE rows (id int8 PRIMARY KEY, {columns})")
    return database


def inserted(number: int) -> str:
    literals = ["'" + literal.replace("'", "''") + "'" for _, literal, _ in TYPES]
    return f"INSERT INTO rows VALUES ({number}, {', '.join(literals)})"


async def test_a_load_and_the_feed_give_the_same_record_of_each_type(dsn: str, mode: Mode) -> None:
    database = await made(dsn)
    names = [f"c{number}" for number in range(len(TYPES))]
    store = await installed(dsn, mode, parse_mappings(mappings_of(json.dumps(names))))
    expected = "{" + ",".join(f'"{name}":{shown}' for name, (_, _, shown) in zip(names, TYPES, strict=True)) + "}"
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(inserted(1))
        await database.execute("INSERT INTO rows VALUES (2)")
        await follower.caught_up()
        assert follower.rows == await content(store)
        found = parse(follower.rows[b"r|1"].decode())
        for name, (kind, literal, shown) in zip(names, TYPES, strict=True):
            assert found[name] == parse(shown), (kind, literal)
        assert follower.rows[b"r|1"].decode() == expected
        assert parse(follower.rows[b"r|2"].decode()) == dict.fromkeys(names)
    await database.close()


async def test_a_record_that_is_written_back_is_the_same_record(dsn: str, mode: Mode) -> None:
    database = await made(dsn)
    names = [f"c{number}" for number in range(len(TYPES))]
    store = await installed(dsn, mode, parse_mappings(mappings_of(json.dumps(names))))
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(inserted(1))
        value = (await content(store))[b"r|1"]
        await store.write([RowChange(b"r|3", value), RowChange(b"r|4", value)])
        await store.write([RowChange(b"r|3", value)])
        await follower.caught_up()
        assert follower.rows == await content(store)
        # White space in a column of type json is what the writer makes of it.
        records = {key: parse(value.decode()) for key, value in follower.rows.items()}
        assert records == dict.fromkeys([b"r|1", b"r|3", b"r|4"], parse(value.decode()))
    await database.close()


@pytest.mark.parametrize(
    ("kind", "literal", "value"),
    [
        ("text[]", '{red,"a,b"}', b'["red","a,b"]'),
        ("timestamptz", "2001-09-09 01:46:40+00", b"2001-09-09T01:46:40+00:00"),
        ("pair", "(7,x,)", b'{"n":7,"t":"x","at":null}'),
        ("numeric", "1.50", b"1.50"),
        ("bool", "t", b"true"),
    ],
)
async def test_a_column_by_itself_is_shown_alike(dsn: str, mode: Mode, kind: str, literal: str, value: bytes) -> None:
    database = await made(dsn)
    await database.execute(f"ALTER TABLE rows ADD COLUMN v {kind}")
    store = await installed(dsn, mode, parse_mappings(mappings_of('"v"')))
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(f"INSERT INTO rows (id, v) VALUES (1, '{literal}')")
        await store.write([RowChange(b"r|2", value)])
        await follower.caught_up()
        assert follower.rows == {b"r|1": value, b"r|2": value} == await content(store)
    await database.close()


async def test_check_says_what_is_made_of_each_column(dsn: str) -> None:
    database = await made(dsn)
    store = await installed(dsn, "slot", parse_mappings(mappings_of('["c3", "c19", "c40", "c41"]')))
    (lines,) = await store.described()
    assert lines[0] == "id (int8): the slot <id> of the key"
    assert "a number with all its digits" in lines[1]
    assert lines[3].endswith("an array, each element text")
    assert lines[4].endswith("an object of n: " + lines[1].partition(": ")[2] + ", t: text, at: text in ISO 8601")
    await store.close()
    await database.close()


async def test_numbers_that_are_written_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a TEXT, b INTEGER, c)")
    connection.close()
    store = SqliteStore(path, parse_mappings(mappings_of('["a", "b", "c"]')))
    await store.install()
    numbers = "[12345678901234567890.1234567890,1e400]"
    await store.write(
        [RowChange(b"r|1", b'{"a":%b,"b":9223372036854775807,"c":9223372036854775808}' % numbers.encode())]
    )
    (row,) = (await store.load([EVERYTHING])).rows
    found = json.loads(row[1], parse_float=Decimal)
    assert found == {"a": numbers, "b": 9223372036854775807, "c": "9223372036854775808"}
    (lines,) = await store.described()
    assert lines[0] == "id (INTEGER): the slot <id> of the key"
    assert lines[1].startswith("a (TEXT): each value by its own type")
    await store.close()


async def test_a_transaction_tells_the_exact_sum_and_the_column_has_it_in_its_form(dsn: str) -> None:
    database = await made(dsn)
    await database.execute("ALTER TABLE rows ADD COLUMN v numeric(9,2)")
    store = await installed(dsn, "slot", parse_mappings(mappings_of('"v"')))
    await database.execute("INSERT INTO rows (id, v) VALUES (1, '50')")
    adds = CommandList(bytes([ADD, ADD, ADD]), [b"r|1", b"-30", b"r|2", b"30.5", b"r|1", b"0.25"])
    _, done = await store.transact(Transaction((KeyCompare(b"r|1", GREATER, b"29"),), adds), NO_LIMITS)
    assert done == (True, [b"20", b"30.5", b"20.25"])
    assert await content(store) == {b"r|1": b"20.25", b"r|2": b"30.50"}
    # A column that cannot have the sum refuses all of it.
    more = CommandList(bytes([ADD, ADD]), [b"r|1", b"1", b"r|2", b"9" * 12])
    with pytest.raises(WriteRefusedError):
        await store.transact(Transaction((), more), NO_LIMITS)
    assert await content(store) == {b"r|1": b"20.25", b"r|2": b"30.50"}
    await store.close()
    await database.close()
