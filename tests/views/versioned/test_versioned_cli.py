"""`pequod versioned`: serve, sweep and check, over replicas in SQLite files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pequod_views.versioned import SqliteReplicas, StoredCell, Update
from pequod_views.versioned.definition import VersionedFileError, parse_versioned
from pequod_views.versioned.rows import base_column
from typer.testing import CliRunner

from pequod.cli.versioned import app

REPLICAS = '"sqlite:{0}/0.db", "sqlite:{0}/1.db", "sqlite:{0}/2.db"'
FILE = """
replicas = [REPLICAS]
[[view]]
name = "assigned_to"
base = "ticket"
key = "assigned"
columns = ["status", "title"]
""".replace("REPLICAS", REPLICAS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "versioned.toml"
    path.write_text(FILE.format(tmp_path))
    return path


def written(folder: Path, *updates: Update) -> None:
    """Write a base, as a program that died before it propagated anything."""

    async def write() -> None:
        store = SqliteReplicas([folder / f"{number}.db" for number in range(3)])
        for update in updates:
            await store.put(update.table, update.key, {base_column(update.column): update.cell}, 3)
        store.close()

    asyncio.run(write())


def called(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


UPDATES = (
    Update("ticket", "1", "assigned", StoredCell("a", 1)),
    Update("ticket", "1", "status", StoredCell("x", 2)),
    Update("ticket", "2", "assigned", StoredCell("b", 3)),
)


def test_a_sweep_propagates_and_a_check_finds_nothing_wrong(file: Path) -> None:
    written(file.parent, *UPDATES)
    assert called("check", file) == "2 records, 2 not propagated yet, 0 wrong\n"
    assert called("sweep", file) == "propagated 3, finished 0, collected 0, forgotten 0\n"
    assert set(json.loads(called("sweep", file, "--json")).values()) == {0}
    assert json.loads(called("check", file, "--json")) == {
        "records": 2,
        "pending": 0,
        "replicas_away": 0,
        "wrong": [],
        "empty": [],
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            "DELETE FROM cells WHERE tbl = 'assigned_to' AND key = 'key a'",
            "'1' is at 'a' in the base",
        ),
        ("UPDATE cells SET value = 'z' WHERE tbl = 'assigned_to' AND value = 'x'", "and the view has {'status'"),
        (
            "UPDATE cells SET value = 'c', timestamp = 9 WHERE tbl = 'ticket' AND value = 'b'",
            "'2' is shown at 'b', and is at 'c'",
        ),
    ],
)
def test_a_check_finds_what_was_changed_by_hand(file: Path, change: str, text: str) -> None:
    written(file.parent, *UPDATES)
    called("sweep", file)
    for number in range(3):
        with sqlite3.connect(file.parent / f"{number}.db") as replica:
            replica.execute(change)
            replica.execute("UPDATE cells SET timestamp = 9 WHERE name = 'done assigned' AND key = '2'")
        replica.close()
    found = called("check", file, code=1)
    assert text in found
    assert re.search(r"[1-9] wrong\n$", found)


SELECTED = """
[[view]]
name = "open"
base = "ticket"
key = "assigned"
columns = ["title"]
where = ['status = "x"']
[[view]]
name = "work"
base = "ticket"
key = "assigned"
aggregates = { tickets = "count", hours = "sum hours" }
by = ["status"]
"""


def test_rows_and_groups_of_a_key_are_read(file: Path) -> None:
    file.write_text(file.read_text() + SELECTED)
    written(
        file.parent,
        *UPDATES,
        Update("ticket", "1", "hours", StoredCell("1.5", 3)),
        Update("ticket", "3", "assigned", StoredCell("a", 4)),
        Update("ticket", "3", "title", StoredCell("é", 4)),
    )
    called("sweep", file)
    assert called("read", file, "assigned_to", "a") == '1 {"status": "x"}\n3 {"title": "é"}\n'
    assert called("read", file, "open", "a") == "1 {}\n"
    assert "open has nothing under the key 'b'" in called("read", file, "open", "b", code=1)
    assert called("read", file, "work", "a") == (
        '{"status": null} {"tickets": "1", "hours": null}\n{"status": "x"} {"tickets": "1", "hours": "1.5"}\n'
    )
    texts = called("read", file, "work", "b", "--json"), called("read", file, "open", "a", "--json")
    assert [json.loads(text) for text in texts] == [
        {"by": {"status": None}, "values": {"tickets": "1", "hours": None}},
        {"key": "1", "values": {}},
    ]
    assert "no view 'closed'; it has assigned_to, open, work" in called("read", file, "closed", "a", code=2)
    assert called("check", file) == "9 records, 0 not propagated yet, 0 wrong\n"


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    good = FILE.format("x")
    for text, reason in {
        "replicas = ": "it is not TOML",
        good.replace("replicas", "replica"): "'replica' is no setting",
        good.replace("[[view]]", "[view]"): "it has no view",
        good.replace('key = "assigned"', "key = 1"): "`key` is a text, not 1",
        good.replace('["status", "title"]', '["assigned"]'): "has it twice",
        f"lease_s = 0\n{good}": "a number of seconds from 0.05",
        f"lease_s = nan\n{good}": "not nan",
        f"lease_s = inf\n{good}": "not inf",
        f"share_count = {10**20}\n{good}": "a whole number from 1 to 65536",
        good.replace("x/1.db", "x/0.db"): "x/0.db: it is one replica, and counts as 2",
        good.replace("x/1.db", "x/../x/0.db"): "it is one replica",
        good.replace("x/1.db", ""): "the path of a file",
        good.replace(REPLICAS.format("x"), "'redis://h', 'redis://H:6379/0'"): "it is one replica",
        good.replace(REPLICAS.format("x"), "'redis://:word@h:99999'"): "redis://h:99999: Port out of range",
        good.replace(REPLICAS.format("x"), "'redis://h/x'"): "a database of Redis has a number",
        f"share_count = true\n{good}": "a whole number from 1",
        good.split("\n", 2)[2]: "it is a list of texts",
        f'{good}where = "status"': "`where` is a list of texts",
        f"{good}where = ['status = open']": "the condition 'status = open' is refused: 'open' is no text",
        f'{good}aggregates = {{ a = "count" }}': "'columns' is no setting",
        f"{good}{SELECTED.replace('sum', 'avg')}": "the aggregate 'avg hours' is refused",
        f"{good}{SELECTED.replace('{ tickets', '[').replace(' }', ']')}": "it is not TOML",
        f"{good}{SELECTED.replace('by =', 'aggregate =')}": "'aggregate' is no setting",
    }.items():
        with pytest.raises(VersionedFileError, match=reason):
            parse_versioned(text)
    path = tmp_path / "wrong.toml"
    path.write_text(good.replace("sqlite:x/0.db", "redis://x"))
    assert "each is sqlite:PATH" in called("check", path, code=2)
    assert "cannot read the views" in called("sweep", tmp_path / "none.toml", code=2)
    for seconds in ("0", "nan", "inf", "1e9"):
        called("serve", path, "--every", seconds, code=2)


def test_a_replica_that_is_missing_or_is_none_is_refused_and_nothing_is_made(file: Path) -> None:
    for command in ("check", "sweep", "serve"):
        assert "0.db: there is no such file" in called(command, file, code=3)
    assert not list(file.parent.glob("*.db"))
    written(file.parent, *UPDATES)
    last = file.parent / "2.db"
    last.unlink()
    os.link(file.parent / "0.db", last)
    assert "2.db: it is one replica, and counts as 2" in called("check", file, code=2)
    last.unlink()
    with closing(sqlite3.connect(last)) as other:
        other.execute("CREATE TABLE mine (a)")
    assert "it is a database, and no replica" in called("sweep", file, code=3)
    with closing(sqlite3.connect(last)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    last.write_text("no database " * 100)
    assert "2.db: file is not a database" in called("check", file, code=3)


def test_a_check_says_that_there_is_nothing_to_compare(file: Path) -> None:
    written(file.parent)
    nothing = "since the table 'ticket' has no records and the view no rows"
    assert called("check", file, code=1) == (
        f"assigned_to: nothing to compare, {nothing}\n0 records, 0 not propagated yet, 0 wrong\n"
    )
    file.write_text(file.read_text() + SELECTED.replace("ticket", "tickets", 1))
    assert json.loads(called("check", file, "--json", code=1))["empty"] == ["assigned_to", "open", "work"]
    # One view of three has another base: that is told, and the others are compared.
    written(file.parent, *UPDATES)
    assert called("check", file).startswith("open: nothing to compare, since the table 'tickets' has no records")
