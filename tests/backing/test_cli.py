"""pequod backing check, sql and install."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.backing.conftest import Connection

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
def test_postgresql_is_installed_and_checked(file: str, dsn: str, database: Connection, feed: str) -> None:
    code, _, err = run("check", file, dsn, "--feed", feed)
    assert code == 3
    assert "run `pequod backing install`" in err
    code, out, _ = run("install", file, dsn, "--feed", feed)
    assert code == 0
    assert ("CREATE PUBLICATION" if feed == "slot" else "CREATE TRIGGER") in out
    code, out, _ = run("check", file, dsn, "--feed", feed)
    assert code == 0, out
    assert out == "ok: p|<poster>|<time:4> <- posts\n"
