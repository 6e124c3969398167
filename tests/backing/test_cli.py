"""pequod backing check, sql, install, uninstall and drop-slot."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.backing.conftest import Connection
from tests.forked import started_server

MAPPING = """
[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
where = "NOT hidden"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "twip.toml"
    path.write_text(MAPPING)
    return str(path)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["backing", *arguments], prog_name="pequod")
    return result.exit_code, result.stdout, result.stderr


def test_sql_shows_the_statement_and_its_parameters(file: str) -> None:
    code, out, _ = run("sql", file, "p|bob|0100", "p|bob|0200")
    assert code == 0
    assert out == (
        'SELECT "posts"."poster"::text, "posts"."at"::text, "posts"."body"::text\n'
        "FROM unnest($1::text[]::text[], $2::text[]::bigint[], $3::text[]::bigint[]) AS box(a0, a1, a2)\n"
        'JOIN "posts" AS "posts" ON "posts"."poster" = box.a0 AND "posts"."at" >= box.a1 AND "posts"."at" < box.a2\n'
        "WHERE (NOT hidden);\n-- $1 = ['bob']\n-- $2 = ['100']\n-- $3 = ['200']\n"
    )
    code, out, _ = run("sql", file, "p|bob|", "p|bob}", "--dialect", "sqlite")
    assert code == 0
    assert "json_each(?)" in out
    assert run("sql", file, "q|", "q}")[0] == 1


def test_sqlite_is_installed_and_checked(file: str, tmp_path: Path) -> None:
    path = tmp_path / "twip.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE posts (poster TEXT, at INT, body TEXT, hidden INT, PRIMARY KEY (poster, at))")
    code, _, err = run("check", file, f"sqlite:{path}")
    assert code == 3
    assert "run `pequod backing install`" in err
    code, out, _ = run("install", file, f"sqlite:{path}")
    assert code == 0
    assert out.count("CREATE TRIGGER") == 3
    code, out, _ = run("check", file, f"sqlite:{path}")
    assert code == 0
    assert "ok: p|<poster>|<time:4> <- posts" in out
    connection.close()


def test_what_is_wrong_is_said_with_an_exit_code(file: str, tmp_path: Path) -> None:
    assert run("check", file, "mysql:x")[0] == 2
    assert run("check", file, "sqlite:x", "--feed", "poll")[0] == 2
    assert run("check", file, "postgresql://localhost/x", "--feed-name", "A-B")[0] == 2
    assert run("sql", file, "p|", "p}", "--dialect", "oracle")[0] == 2
    assert run("check", str(tmp_path / "no.toml"), "sqlite:x")[0] == 2
    code, _, err = run("check", file, f"sqlite:{tmp_path}/no.db")
    assert code == 4
    assert "not available" in err
    (tmp_path / "bad.toml").write_text("[[mapping]]\nkeys = 'p|<a'\ntable = 'x'\n")
    code, _, err = run("sql", str(tmp_path / "bad.toml"), "p|", "p}")
    assert code == 2
    assert "not closed" in err


@pytest.mark.parametrize("feed", ["slot", "notify"])
async def test_check_tells_everything_at_once(
    file: str, dsn: str, database: Connection, tmp_path: Path, feed: str
) -> None:
    other = tmp_path / "more.toml"
    bad_column = MAPPING.replace('"p|', '"q|').replace('"body"', '"bodi"')
    bad_table = MAPPING.replace('"p|', '"r|').replace('"posts"', '"post"')
    other.write_text(MAPPING + bad_column + bad_table)
    with closing(sqlite3.connect(tmp_path / "twip.db")) as connection:
        connection.execute("CREATE TABLE posts (poster TEXT, at INT, body TEXT, hidden INT, UNIQUE (poster, at))")
    for url in (dsn, f"sqlite:{tmp_path}/twip.db"):
        code, _, err = invoke("check", str(other), url, "--feed", feed)
        assert code == 3
        assert "has no column bodi" in err
        assert "there is no table post," in err
        assert "run `pequod backing install`" in err


@pytest.mark.parametrize("feed", ["slot", "notify"])
def test_postgresql_is_installed_and_checked(file: str, dsn: str, database: Connection, feed: str) -> None:
    code, _, err = run("check", file, dsn, "--feed", feed)
    assert code == 3
    assert "run `pequod backing install`" in err
    code, out, _ = run("install", file, dsn, "--feed", feed)
    assert code == 0
    assert ("CREATE PUBLICATION" if feed == "slot" else "CREATE TRIGGER") in out
    code, out, _ = run("check", file, dsn, "--feed", feed)
    assert code == 0, out
    slots = "    poster (text): the slot <poster> of the key\n    at (int8): the slot <time:4> of the key\n"
    assert out == f"ok: p|<poster>|<time:4> <- posts\n{slots}    body (text): text\n"


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Run a command in a thread of its own, as it has an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, *arguments).result()


#: All that the catalogs say of what a user can make, without numbers.
CATALOG = """
SELECT 'relation', relname, relkind::text, relreplident::text, relhastriggers::text FROM pg_class
WHERE relnamespace::regnamespace::text NOT LIKE 'pg_toast%'
UNION ALL SELECT 'trigger', tgname, tgrelid::regclass::text, tgenabled::text, '' FROM pg_trigger
UNION ALL SELECT 'function', proname, pronamespace::regnamespace::text, md5(prosrc), '' FROM pg_proc
UNION ALL SELECT 'schema', nspname, nspowner::regrole::text, '', '' FROM pg_namespace
UNION ALL SELECT 'publication', pubname, '', '', '' FROM pg_publication
UNION ALL SELECT 'slot', slot_name, database, '', '' FROM pg_replication_slots
UNION ALL SELECT 'column', attname, attrelid::regclass::text, atttypid::regtype::text, '' FROM pg_attribute
WHERE attrelid::regclass::text !~ 'pg_toast'
UNION ALL SELECT 'comment', description, classoid::regclass::text, '', '' FROM pg_description WHERE objoid >= 16384
UNION ALL SELECT 'shared comment', description, '', '', '' FROM pg_shdescription WHERE objoid >= 16384
ORDER BY 1, 2, 3, 4, 5
"""


async def catalog(database: Connection) -> list[tuple[str, ...]]:
    # A table that had triggers is marked until it is vacuumed.
    await database.execute("VACUUM posts, subscriptions")
    return [tuple(row) for row in await database.fetch(CATALOG)]


@pytest.mark.parametrize("feed", ["slot", "notify"])
@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX posts_poster_at_key", "NOTHING"])
async def test_uninstall_leaves_nothing_behind(
    file: str, dsn: str, database: Connection, feed: str, identity: str
) -> None:
    await database.execute(f"ALTER TABLE posts REPLICA IDENTITY {identity}")
    await database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, 'hi')")
    before = await catalog(database)
    assert invoke("install", file, dsn, "--feed", feed)[0] == 0
    # Twice, and with another mapping, as after a migration.
    other = Path(file).with_name("other.toml")
    other.write_text(MAPPING.replace('"p|', '"q|'))
    assert invoke("install", str(other), dsn, "--feed", feed)[0] == 0
    if feed == "slot":
        await database.execute("SELECT pg_create_logical_replication_slot('pequod', 'pgoutput')")
    assert await catalog(database) != before
    code, out, err = invoke("uninstall", dsn)
    assert (code, "say --yes" in err) == (2, True), "it asks, and nobody can answer here"
    assert invoke("uninstall", dsn, "--feed-name", "other", "--yes")[0] == 1
    code, done, err = invoke("uninstall", dsn, "--yes")
    assert code == 0, err
    assert done == out, "what is shown is what is run"
    assert await catalog(database) == before
    assert await database.fetchval("SELECT count(*) FROM posts") == 1
    await database.execute("UPDATE posts SET body = 'ho'; DELETE FROM posts")
    assert invoke("uninstall", dsn, "--yes")[0] == 1


async def test_uninstall_leaves_other_feeds_alone(file: str, dsn: str, database: Connection) -> None:
    for name in ("one", "two"):
        for feed in ("slot", "notify"):
            assert invoke("install", file, dsn, "--feed", feed, "--feed-name", f"{name}_{feed}")[0] == 0
    await database.execute("CREATE TABLE pequod.mine (id int)")
    for feed in ("slot", "notify"):
        assert invoke("uninstall", dsn, "--feed-name", f"one_{feed}", "--yes")[0] == 0
    assert invoke("check", file, dsn, "--feed", "slot", "--feed-name", "two_slot")[0] == 0
    assert await database.fetchval("SELECT relreplident::text FROM pg_class WHERE relname = 'posts'") == "f"
    assert await database.fetchval("SELECT count(*) FROM pequod.mine") == 0
    await database.execute("DROP SCHEMA pequod CASCADE; DROP PUBLICATION two_slot")


async def test_a_slot_in_use_is_not_dropped(file: str, dsn: str, database: Connection) -> None:
    assert invoke("install", file, dsn)[0] == 0
    assert invoke("drop-slot", dsn)[0] == 1
    assert invoke("drop-slot", "sqlite:x")[0] == 2
    options = ["--backing", dsn, "--backing-mapping", file]
    with started_server(*options):
        # The server has made the slot, and begins to use it a moment later.
        async with asyncio.timeout(30):
            while not await database.fetchval("SELECT bool_or(active) FROM pg_replication_slots"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for command in (["drop-slot", dsn], ["uninstall", dsn, "--yes"]):
            code, _, err = invoke(*command)
            assert code == 3
            assert "from this machine uses it (process " in err
        assert await database.fetchval("SELECT count(*) FROM pg_publication") == 1, "nothing was changed"
    code, out, err = invoke("drop-slot", dsn)
    assert (code, out) == (0, "SELECT pg_drop_replication_slot('pequod');\n"), err
    assert await database.fetchval("SELECT count(*) FROM pg_replication_slots") == 0
    await database.execute("SELECT pg_create_logical_replication_slot('foreign_one', 'test_decoding')")
    code, _, err = invoke("drop-slot", dsn, "--feed-name", "foreign_one")
    assert (code, "of another database or plugin" in err) == (3, True)


def test_uninstall_leaves_nothing_behind_in_sqlite(file: str, tmp_path: Path) -> None:
    path = tmp_path / "twip.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE posts (poster TEXT, at INT, body TEXT, hidden INT, PRIMARY KEY (poster, at))")
        connection.execute("CREATE TABLE log (text TEXT)")
        connection.execute("CREATE TRIGGER mine AFTER INSERT ON posts BEGIN INSERT INTO log VALUES ('new'); END")
        before = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        assert run("install", file, f"sqlite:{path}")[0] == 0
        connection.execute("INSERT INTO posts VALUES ('bob', 1, 'hi', 0)")
        connection.commit()
        assert run("uninstall", f"sqlite:{path}")[0] == 2
        assert run("uninstall", f"sqlite:{path}", "--yes")[0] == 0
        after = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        assert [row for row in after if row[1] != "sqlite_sequence"] == before, "SQLite keeps a table of its own"
        assert connection.execute("SELECT count(*) FROM posts").fetchone() == (1,)
    assert run("uninstall", f"sqlite:{path}", "--yes")[0] == 1
