"""The commands of `pequod lake`, in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from typer.testing import CliRunner, Result

from pequod.cli.app import app

SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user", created = "timestamp", body = "text" }
views.by_author = ["author", "created", "id"]

[[table]]
name = "parts"
key = ["k"]
partial = true
columns = { k = "text", x = "int64", y = "int64" }
"""


def lake(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["lake", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_rows_of_files_go_through_all_stages_and_are_read_at_each_freshness(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "posts.csv").write_text(
        'id,author,created,body\n1,ann,2026-11-01,"a, ""b"""\n2,bob,2026-11-02,\n3,ann,2026-11-03,c\n'
    )
    (tmp_path / "parts.jsonl").write_text('{"k": "z", "x": 1}\n{"k": "y", "x": null}\n')
    parquet.write_table(pa.table({"k": ["z"], "y": [2]}), tmp_path / "parts.parquet")
    folder = tmp_path / "lake"
    lake("init", folder, tmp_path / "schema.toml")
    lake("init", folder, tmp_path / "schema.toml", code=3)
    posts, parts = f"posts={tmp_path}/posts.csv", f"parts={tmp_path}/parts.jsonl"
    lines = lake("ingest", folder, posts, "--rows", 2, "--json").stdout.splitlines()
    assert [(json.loads(line)["scu"], json.loads(line)["rows"]) for line in lines] == [(1, 2), (2, 1)]
    assert "taken before" in lake("ingest", folder, posts, "--rows", 2).stdout
    assert "SCU 3" in lake("ingest", folder, parts, f"parts={tmp_path}/parts.parquet", "--whole").stdout
    assert lake("query", folder, "posts", "author=ann", "--freshness", "authority", code=1).stdout == ""
    expected = 'id,body\n1,"a, ""b"""\n3,c\n'
    assert lake("query", folder, "posts", "author=ann", "--columns", "id,body").stdout == expected
    told = lake("query", folder, "parts", "--json")
    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"k": "y", "x": None, "y": None},
        {"k": "z", "x": 1, "y": 2},
    ]
    assert "SCU 3, 0.000 s old" in told.stderr
    assert "remap of SCU 1 to 1" in lake("run", folder, "--until-done").stdout
    lake("compact", folder)
    assert lake("query", folder, "posts", "author=ann", "--columns", "id,body", "-f", "authority").stdout == expected
    (tmp_path / "gone.csv").write_text("id\n1\n")
    lake("ingest", folder, f"posts={tmp_path}/gone.csv", "--delete")
    statement = "SELECT author, count(*) AS n FROM posts GROUP BY author ORDER BY author"
    assert lake("sql", folder, statement).stdout == "author,n\nann,1\nbob,1\n"
    assert lake("sql", folder, statement, "--at-scu", 3).stdout == "author,n\nann,2\nbob,1\n"
    status = json.loads(lake("status", folder, "--json").stdout)
    assert (status["scu"], status["authority_scu"], status["stages"]["raw"]["run_count"]) == (4, 3, 1)
    (folder / "data/main/posts/sort-0123456789ab-0.parquet").write_bytes(b"of a writer that ended")
    said = lake("verify", folder).stderr
    assert "files of older states were not read" in said
    assert "1 files that the catalog does not name, such as data/main/posts/sort-0123456789ab-0.parquet," in said
    assert lake("expire", folder, "--keep", "0s").stdout.endswith("files of older states and 1 orphans\n")
    lake("sql", folder, statement, "--at-scu", 2, code=3)
    said = lake("verify", folder).stderr
    assert "of the present state, are as they were written" in said
    assert "not read" not in said
    (folder / json.loads(json.dumps(_some_file(folder)))).unlink()
    assert "cannot be read" in lake("verify", folder, code=1).stdout


def _some_file(folder: Path) -> str:
    return next((folder / "data").rglob("*.parquet")).relative_to(folder).as_posix()


def test_a_run_that_keeps_little_leaves_the_files_of_the_present_alone(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "posts.csv").write_text("id,author,created,body\n1,ann,2026-11-01,a\n")
    folder = tmp_path / "lake"
    lake("init", folder, tmp_path / "schema.toml")
    lake("ingest", folder, f"posts={tmp_path}/posts.csv")
    lake("run", folder, "--until-done", "--authority-after", "0s")
    before = len(list((folder / "data").rglob("*.parquet")))
    lake("run", folder, "--until-done", "--keep", "0s")
    present = json.loads(lake("status", folder, "--json").stdout)["stages"]["authority"]["run_count"]
    assert (present, before > 4, len(list((folder / "data").rglob("*.parquet")))) == (1, True, 4)
    assert lake("query", folder, "posts", "author=ann", "--columns", "id").stdout == "id\n1\n"
    assert "no age" in lake("run", folder, "--until-done", "--keep", "1x", code=2).stderr


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert "no catalog.sqlite" in lake("status", tmp_path, code=3).stderr
    (tmp_path / "schema.toml").write_text(SCHEMA)
    folder = tmp_path / "lake"
    lake("init", folder, tmp_path / "schema.toml")
    (tmp_path / "bad.csv").write_text("id,author,created,body\nx,ann,2026-11-01,b\n")
    assert "bad.csv" in lake("ingest", folder, f"posts={tmp_path}/bad.csv", code=3).stderr
    assert "name the table" in lake("ingest", folder, tmp_path / "bad.csv", code=2).stderr
    assert "no column 'z'" in lake("query", folder, "posts", "z=1", code=3).stderr
    assert "no table" in lake("query", folder, "nothing", code=3).stderr
    assert "is authority, newest" in lake("query", folder, "posts", "-f", "soon", code=3).stderr
    assert "Parser Error" in lake("sql", folder, "SELEC posts", code=3).stderr
    assert "no age" in lake("expire", folder, "--keep", "1x", code=2).stderr


def test_the_demo_is_never_off_and_draws_two_figures(tmp_path: Path) -> None:
    result = lake("demo", "--seconds", 1, "--rows-per-s", 500, "--out", tmp_path, "--json")
    report = json.loads(result.stdout)
    assert (report["row_count"], report["wrong"]) == (500, [])
    assert set(report["latencies_ms"]) == {"authority", "5s", "1s", "newest"}
    assert {path.name for path in tmp_path.glob("*.png")} == {"latency.png", "staleness.png"}
