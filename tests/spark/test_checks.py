"""What is wrong with a command of Spark is said before Spark starts: here is no Java that could."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pequod_grammar import parse
from typer.testing import CliRunner, Result

from pequod.cli.app import app
from pequod.engine import Engine
from tests.spark.served import served

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
n|<user> = count t|<user>|<time:4>|<poster>;
f|<user> = snapshot 5 count s|<user>|<poster>
"""
ACCESS = """
[roles.reader]
read = ["t|", "s|", "p|"]
[roles.writer]
write = ["p|bob|"]
[roles.root]
read = [""]
write = [""]
admin = [""]
"""
NO_JAVA = "JAVA_HOME is '/nonexistent'"

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    access = tmp_path_factory.mktemp("access") / "access.toml"
    for name in ("reader", "writer", "root"):
        tokens = f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
        with access.open("a") as file:
            file.write(tokens if name != "reader" else ACCESS + tokens)
    engine = Engine()
    engine.add_joins(parse(JOINS))
    engine.put(b"p|bob|0001", b"hello")
    engine.put(b"s|ann|bob", b"1")
    with served(engine, access_file=access) as target:
        yield target


@pytest.fixture
def run(target: str) -> Run:
    def run(command: str, *, token: str = "root") -> Result:
        words = command.replace("TARGET", target).split()
        return CliRunner().invoke(app, words, env={"PEQUOD_TOKEN": token, "PEQUOD_TARGET": target})

    return run


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever comes as far as Spark says that there is no Java; files are in the present folder."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"key": [b"p|bob|0002", b"p|liz|0001"], "value": [b"a", b"b"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    pq.write_table(pa.table({"key": [1], "value": [2.5]}), tmp_path / "numbers.parquet")
    pq.write_table(pa.table({"poster": ["bob"], "time": [7], "value": ["x"]}), tmp_path / "posts.parquet")
    Path("rows.csv").write_text("key,value\np|bob|0002,a\n")
    Path("posts.csv").write_text("time,poster,value\n7,bob,x\n")
    Path("bad.jsonl").write_text('{"key": "k"}\n')
    Path("rows.jsonl").write_text('{"key": "p|liz|0002", "value": "a"}\n')
    Path("broken.parquet").write_text("no such thing")
    Path("empty").mkdir()


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("verify --join nope", 3, "no join is called 'nope'; installed: t, n, f"),
        ("verify --join f", 3, "the join 'f' cannot be verified: it shows snapshots"),
        ("verify --master sc://localhost", 2, "this command needs a classic session of Spark"),
        ("verify --master locl[2]", 2, "--master is local, local[N]"),
        ("verify --master spark://elsewhere:7077", 2, "the tasks of spark://elsewhere:7077 run on other machines"),
        ("verify --conf spark.driver.memory", 2, "--conf needs NAME=VALUE, not 'spark.driver.memory'"),
        ("verify --target 127.0.0.1:1", 4, "no server at 127.0.0.1:1"),
        ("backfill --join nope", 3, "no join is named 'nope'"),
        ("backfill --join n", 3, "joins compute some of its sources"),
        ("backfill --join f", 3, "cannot be backfilled"),
        ("backfill --join t --level 9", 3, "its output has 3 slots"),
        ("backfill --join t --source parquet:nowhere.parquet", 2, "there is no file nowhere.parquet"),
        ("backfill --join t --source parquet:numbers.parquet", 2, "has no columns key and value, binary or text"),
        ("backfill --join t --source parquet:broken.parquet", 2, "it cannot be read as parquet"),
        ("backfill --join t --target 127.0.0.1:1", 4, "no server at 127.0.0.1:1"),
        ("spark load -s parquet:nowhere/*.parquet", 2, "there is no file nowhere/*.parquet"),
        ("spark load -s parquet:empty", 2, "the folder empty has no files"),
        ("spark load -s parquet:broken.parquet", 3, "it cannot be read as parquet"),
        ("spark load -s parquet:posts.parquet", 3, "column 'key': there is none"),
        ("spark load -s parquet:posts.parquet --pattern p|<who>|<time:4>", 3, "column 'who': there is none"),
        ("spark load -s parquet:posts.parquet --pattern p|<poster", 2, "--pattern: "),
        ("spark load -s csv:posts.csv", 3, "column 'key': there is none"),
        ("spark load -s csv:posts.csv --pattern p|<poster>|<day:4>", 3, "column 'day': there is none"),
        ("spark load -s jsonl:bad.jsonl", 3, "bad.jsonl, line 1: it must be"),
        ("spark load -s csv:rows.csv --target 127.0.0.1:1", 4, "no server at 127.0.0.1:1"),
        ("spark replay nowhere", 2, "there is no file nowhere"),
        ("spark replay empty -t TARGET", 2, "the folder empty has no files"),
        ("spark replay rows.csv -t TARGET", 3, "is not empty (it has 5 keys and the joins t, n, f)"),
    ],
)
def test_what_is_wrong_is_said_without_spark(run: Run, command: str, code: int, message: str) -> None:
    result = run(command)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert NO_JAVA not in result.stderr


@pytest.mark.parametrize(
    ("command", "token", "message"),
    [
        ("verify --join t", "writer", "no join is called 't'"),
        ("verify --join t --repair", "reader", "lacks the right 'admin' on "),
        ("backfill --join t", "reader", "lacks the right 'admin' on "),
        ("spark load -s parquet:rows.parquet", "reader", "lacks the right 'write' on the key"),
        ("spark load -s jsonl:rows.jsonl", "writer", "lacks the right 'write' on the key"),
        ("spark load -s csv:posts.csv --pattern p|<poster>|<time:4>", "reader", "lacks the right 'write' on the key"),
        ("spark load -s csv:rows.csv", "unknown", "does not know this token"),
    ],
)
def test_rights_that_are_missing_are_said_without_spark(run: Run, command: str, token: str, message: str) -> None:
    result = run(command, token=token)
    assert (result.exit_code, message in result.stderr) == (3, True), result.stderr


@pytest.mark.parametrize(
    ("command", "token"),
    [
        ("verify --join t", "reader"),
        ("verify --prefix t|ann| --repair", "root"),
        ("backfill --join t --source parquet:rows.parquet", "root"),
        ("spark load -s parquet:rows.parquet", "writer"),
        ("spark load -s parquet:posts.parquet --pattern p|<poster>|<time:4>", "writer"),
        ("spark load -s csv:posts.csv --pattern p|<poster>|<time:4>", "writer"),
        ("spark load -s csv:rows.csv", "writer"),
        ("spark load -s csv:posts.csv --pattern p|<poster>|<time:4> --dry-run", "unknown"),
        ("spark load -s parquet:hdfs://somewhere/rows --pattern p|<poster>|<time:4>", "writer"),
        ("spark load -s parquet:nowhere --master spark://127.0.0.1:7077", "writer"),
    ],
)
def test_what_is_right_goes_on_to_spark(run: Run, command: str, token: str) -> None:
    """That wants Java; what was begun for it has ended, and nothing is written."""
    result = run(command, token=token)
    assert NO_JAVA in result.stderr, result.stderr
    assert result.exit_code == 3
    live = run("backfill status")
    assert "without news end it" not in live.stdout
    assert run("count --prefix p|").stdout == "1\n"
