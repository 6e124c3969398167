"""`pequod views`: install, uninstall, check, run, status and wait."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pequod import Client
from pequod.cli.app import app
from tests.forked import started_server

FILE = """
server = "{target}"
database = "sqlite:{path}"
joins = "karma|<author> = count vote|<author>|<id>|<voter>"
[[view]]
name = "karma"
keys = "karma|<author>"
value = {{ column = "votes", type = "integer" }}
"""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (address, _):
        yield address


@pytest.fixture
def file(target: str, tmp_path: Path) -> Path:
    path = tmp_path / "views.toml"
    path.write_text(FILE.format(target=target, path=tmp_path / "live.db"))
    return path


def views(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["views", *map(str, arguments)], prog_name="pequod")


def test_a_table_from_install_to_status(file: Path, target: str) -> None:
    for word in ("status", "check", "run", "verify", "uninstall"):
        outcome = views(word, file)
        assert (outcome.exit_code, "there is no such file" in outcome.stderr) == (3, True)
    assert not (file.parent / "live.db").exists()
    (file.parent / "live.db").touch()
    assert views("status", file).exit_code == 1
    assert "nothing is installed" in views("check", file).stderr
    assert views("run", file).exit_code == 3
    assert views("install", file).stdout.splitlines() == [
        "karma: made the table karma",
        "karma: is new; its range has 1 parts",
    ]
    assert views("check", file).stdout == "ok: karma -> karma\n"
    assert views("status", file).stdout.splitlines()[1].split()[:3] == ["karma", "karma|", "free"]
    command = [sys.executable, "-m", "pequod.cli", "views", "run", str(file), "--json", "--metrics", "127.0.0.1:0"]
    with (
        Client(target) as client,
        subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as running,
        ExitStack() as ending,
    ):
        ending.callback(running.kill)
        client.put("vote|ann|1|bob", "")
        end_s = time.monotonic() + 60
        with closing(sqlite3.connect(file.parent / "live.db")) as database:
            while database.execute("SELECT author, votes FROM karma").fetchall() != [("ann", 1)]:
                assert time.monotonic() < end_s
                time.sleep(0.02)
        (part,) = map(json.loads, views("status", file, "--json").stdout.splitlines())
        assert (part["state"], part["unfit"]) == ("follows", 0)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["parts"] == 1
    assert "Traceback" not in err
    # The part was handed over.
    assert json.loads(views("status", file, "--json").stdout)["state"] == "free"


def test_uninstall_leaves_the_table_or_drops_it(file: Path) -> None:
    (file.parent / "live.db").touch()
    assert views("uninstall", file).stdout == "nothing is installed\n"
    views("install", file)
    assert views("uninstall", file, "other").exit_code == 3
    last = "no view is left; removed what was beside them\n"
    assert views("uninstall", file).stdout == f"karma: kept the table karma\n{last}"
    views("install", file)
    assert views("uninstall", file, "karma", "--drop-tables").stdout == f"karma: dropped the table karma\n{last}"
    with closing(sqlite3.connect(file.parent / "live.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_wait_needs_a_token_and_a_view_of_the_file(file: Path) -> None:
    views("install", file)
    assert views("wait", file, "karma", "pq1.AQ", "--wait", "0").exit_code == 0
    assert views("wait", file, "karma", "pq1.AZ86YcIBpbTYAw", "--wait", "0").exit_code == 1
    assert views("wait", file, "karma", "nonsense").exit_code == 2
    assert views("wait", file, "other", "pq1.AQ").exit_code == 2


def test_what_cannot_be_read_is_a_message(file: Path, tmp_path: Path) -> None:
    assert views("check", tmp_path / "none.toml").exit_code == 2
    assert views("check", file, "--database", "nonsense").exit_code == 2
    assert views("status", file, "--database", "postgresql://x@127.0.0.1:1/x").exit_code == 4
    assert views("run", file, "--metrics", "nonsense").exit_code == 3
    assert views("install", file, "--database", f"sqlite:{tmp_path}/none/live.db").exit_code == 3
    for option in ("--lease", "--wait"):
        for seconds in ("nan", "-1"):
            command = ("run", file) if option == "--lease" else ("wait", file, "karma", "pq1.AQ")
            assert views(*command, option, seconds).exit_code == 2
    views("install", file)
    outcome = views("run", file, "--metrics", "nonsense")
    assert (outcome.exit_code, "HOST:PORT" in outcome.stderr) == (2, True)


def test_a_view_that_cannot_be_compared_keeps_no_other_from_it(file: Path, target: str) -> None:
    second = FILE[FILE.index("[[view]]") :].replace('"karma"', '"second"').format()
    file.write_text(file.read_text() + second)
    assert views("install", file).exit_code == 0
    with closing(sqlite3.connect(file.parent / "live.db")) as connection:
        connection.execute("ALTER TABLE karma DROP COLUMN votes")
    outcome = views("verify", file, "--wait", 0.2)
    assert outcome.exit_code == 3
    _, first, looked_at, lacking, late = outcome.stdout.splitlines()
    assert (first.split()[0], looked_at.split()[:2]) == ("karma", ["second", "karma|"])
    assert lacking.startswith("karma: ")
    assert "no column votes" in lacking
    assert "second from karma|: it has not come in 0.2 s" in late, "no manager runs, and it was looked at all the same"
    assert "not all parts could be compared" in outcome.stderr
