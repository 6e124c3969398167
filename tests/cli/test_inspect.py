"""explain and stats, and the published joins from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Pequod
from tests.engine.joins import CELEBRITY, NEWP, TIMELINE


@pytest.fixture(autouse=True)
def empty(pequod: Pequod) -> None:
    """Drop all joins and keys of the module's server."""
    for line in pequod("join", "list", "--json").out.splitlines():
        pequod("join", "drop", json.loads(line)["name"])
    for line in pequod("scan", "", "--json").out.splitlines():
        pequod("rm", json.loads(line)["key"])


def put_all(pequod: Pequod, rows: dict[str, str]) -> None:
    for key, value in rows.items():
        assert pequod("put", key, value).code == 0


def test_a_joins_plan(pequod: Pequod) -> None:
    pequod("join", "add", TIMELINE)
    lines = pequod("join", "explain", "t").out.splitlines()
    assert lines[0] == f"t: {TIMELINE.replace('<time>', '<time:4>')}"
    assert lines[1] == "maintenance: push"
    assert lines[3].split() == ["source", "reads", "narrowed", "by", "binds", "upkeep", "computed", "by"]
    assert lines[5].split() == ["copy", "p|<poster>|<time:4>", "p|<poster>|", "time", "time", "eager"]
    plan = json.loads(pequod("join", "explain", "t", "--json").out)
    assert [source["narrowed_by"] for source in plan["sources"]] == [None, "time"]
    assert pequod("join", "explain", "no").code == 3


def test_what_a_read_would_find(pequod: Pequod) -> None:
    pequod("join", "add", TIMELINE)
    put_all(pequod, {"s|ann|bob": "1", "p|bob|0001": "Hi"})
    assert "the next read will compute 1 range" in pequod("explain", "--prefix", "t|ann|").out
    pequod("scan", "--prefix", "t|ann|")
    put_all(pequod, {"s|ann|liz": "1"})
    shown = pequod("explain", "--prefix", "t|ann|").out
    assert "apply 1 log entry, return 1 row that is there" in shown
    assert shown.splitlines()[-1].split() == ["t|ann|", "t|ann}", "logged", "1", "2", "1"]
    found = json.loads(pequod("explain", "--prefix", "t|ann|", "--json").out)
    assert found["stored_keys"] == 0
    (part,) = found["joins"][0]["parts"]
    assert (part["first"], part["last"], part["state"]) == ("t|ann|", "t|ann}", "logged")
    assert json.loads(pequod("explain", "s|", "--json").out)["last"] is None


def test_stats_shows_keys_joins_and_memory(pequod: Pequod) -> None:
    assert "0 keys without a table" in pequod("stats").out
    pequod("put", "alone", "1")
    assert "1 key without a table" in pequod("stats").out
    pequod("rm", "alone")
    pequod("join", "add", TIMELINE)
    put_all(pequod, {"s|ann|bob": "1", "p|bob|0001": "Hi", "loose": ""})
    pequod("scan", "--prefix", "t|ann|")
    shown = json.loads(pequod("stats", "--json").out)
    assert shown["loose_keys"] == 1
    assert {table["table"]: table["keys"] for table in shown["tables"]} == {"p": 1, "s": 1}
    assert [(join["join"], join["rows"], join["computed_ranges"]) for join in shown["joins"]] == [("t", 1, 1)]
    assert shown["memory"]["total_bytes"] >= shown["memory"]["stored_bytes"] > 0
    assert [line.split()[0] for line in pequod("stats").out.splitlines() if line][3:] == [
        "table",
        "p",
        "s",
        "join",
        "t",
        "largest",
        "join",
        "t",
    ]
    assert [join["largest"] for join in shown["joins"]] == [[{"prefix": "t|ann|", "rows": 1, "hits": 0}]]


def test_an_article_page_from_the_command_line(pequod: Pequod, tmp_path: Path) -> None:
    declarations = tmp_path / "newp.joins"
    declarations.write_text(NEWP)
    assert pequod("join", "add", f"@{declarations}").code == 0
    rows = {"article|bob|101": "text", "comment|bob|101|c1|liz": "nice", "vote|bob|101|ann": "1", "vote|liz|7|ann": "1"}
    put_all(pequod, rows)
    page = ["page|bob|101|a\ttext", "page|bob|101|c|c1|liz\tnice", "page|bob|101|k|c1|liz\t1", "page|bob|101|r\t1"]
    assert pequod("scan", "--prefix", "page|bob|101|").out.splitlines() == page
    put_all(pequod, {"vote|bob|101|jim": "1"})
    assert pequod("scan", "--prefix", "page|bob|101|r").out == "page|bob|101|r\t2\n"


def test_celebrities_from_the_command_line(pequod: Pequod) -> None:
    assert pequod("join", "add", "-", stdin=CELEBRITY.encode()).code == 0
    put_all(pequod, {"s|ann|bob": "1", "s|ann|gaga": "1", "p|bob|0001": "Hi", "cp|gaga|0002": "la"})
    timeline = "t|ann|0001|bob\tHi\nt|ann|0002|gaga\tla\n"
    assert pequod("scan", "--prefix", "t|ann|").out == timeline
    put_all(pequod, {"cp|gaga|0003": "la la"})
    assert pequod("scan", "--prefix", "t|ann|").out == timeline + "t|ann|0003|gaga\tla la\n"


def test_why_a_join_shows_nothing(pequod: Pequod) -> None:
    put_all(pequod, {"follow|ann|bob": "1", "p|bob|0001": "Hi"})
    absent, meant = "no key and no join has the table 'folow'", "is the table 'follow' meant?"
    text = "t|<user>|<time:4>|<poster> = check folow|<user>|<poster> copy p|<poster>|<time>"
    assert pequod("join", "add", text).err == f"pequod: warning: join t: {absent}; {meant}\n"
    assert pequod("join", "explain", "t").out.splitlines()[-2:] == [f"note: {absent}", f"note: {meant}"]
    assert json.loads(pequod("join", "explain", "t", "--json").out)["notes"] == [absent, meant]
    shown = [f"join t: {absent}", f"join t: {meant}"]
    assert [f"note: {note}" for note in shown] == pequod("explain", "--prefix", "t|ann|").out.splitlines()[2:4]
    assert json.loads(pequod("explain", "--prefix", "t|ann|", "--json").out)["notes"] == shown
    changed = pequod("join", "add", text.replace("folow", "follow"))
    assert "drop it first: `pequod join drop t`" in changed.err
    assert changed.err.count("\n") == 1
