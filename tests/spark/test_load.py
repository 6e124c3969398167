"""`pequod spark load`: what files hold is in the server afterwards, or nothing of it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pequod_spark.connection import Connection
from pequod_spark.ranges import in_ranges
from pyspark.sql import DataFrame, SparkSession
from pyspark_pequod import loading
from pyspark_pequod.options import key_pattern
from typer.testing import CliRunner, Result

from pequod.cli.app import app
from pequod.client import Client
from tests.spark.served import served

ROWS = {f"p|u{number % 7}|{number:04d}".encode(): b"tweet %d" % number for number in range(500)} | {
    b"odd|\xff\x00|\n": b"",
    b'odd|"quoted", and \\ such': b'{"base64": "/w=="}',
    "odd|zoë".encode(): "é \t\n".encode(),
}

Load = Callable[..., Result]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with served() as target:
        yield target


@pytest.fixture
def load(spark: SparkSession, target: str) -> Load:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["spark", "load", "--target", target, *arguments])

    return run


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target) as client:
        client.remove_range(b"")
        yield client


def test_many_rows_are_written_by_several_tasks(
    load: Load, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PART_ROWS", 1_000)
    monkeypatch.setattr(loading, "FEW_BYTES", 0)
    path = tmp_path / "rows.parquet"
    keys = [b"p|%05d" % number for number in range(4_000)]
    pq.write_table(pa.table({"key": keys, "value": keys}), path)
    cut: list[list[bytes]] = []

    def noted(rows: DataFrame, splits: list[bytes]) -> DataFrame:
        cut.append(splits)
        return in_ranges(rows, splits)

    monkeypatch.setattr(loading, "in_ranges", noted)
    result = load("--source", f"parquet:{path}")
    assert result.exit_code == 0, result.output
    assert [key for key, value in client.scan("") if key == value] == keys
    (splits,) = cut
    assert 2 <= len(splits) <= 6
    assert splits == sorted(set(splits))


def test_few_rows_take_one_job(spark: SparkSession, client: Client) -> None:
    """Neither is a sample taken to see where to cut them, nor are they shuffled."""
    rows = spark.range(2000).selectExpr("concat('p', id % 7) as poster", "id as time", "'hello' as value")
    context, group = spark.sparkContext, "few rows"
    context.setJobGroup(group, group)
    try:
        assert loading.load(rows, Connection(client.target), key_pattern({"pattern": "<poster>|<time:4>"})) == 2000
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert client.count() == 2000
    (job,) = context.statusTracker().getJobIdsForGroup(group)
    told = context.statusTracker().getJobInfo(job)
    assert told is not None
    assert len(told.stageIds) == 1


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_what_was_dumped_is_loaded(load: Load, client: Client, tmp_path: Path, kind: str) -> None:
    client.multi_put(ROWS)
    path = tmp_path / f"rows.{kind}"
    dumped = CliRunner().invoke(app, ["dump", "", "--target", client.target, "--output", str(path)])
    assert dumped.exit_code == 0, dumped.stderr
    client.remove_range(b"")
    result = load("--source", f"{kind}:{path}")
    assert result.exit_code == 0, result.stderr
    assert "pequod: 503 rows loaded in " in result.stderr
    assert dict(client.scan()) == ROWS


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("csv", "time,poster,value\n7,ann,one\n12,bob,\n"),
        ("jsonl", '{"poster": "ann", "time": 7, "value": "one"}\n{"poster": "bob", "time": 12, "value": ""}\n'),
    ],
)
def test_keys_are_made_of_columns(load: Load, client: Client, tmp_path: Path, kind: str, text: str) -> None:
    client.add_join("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
    client.put("s|liz|ann", "1")
    assert client.scan(prefix="t|liz|") == []
    path = tmp_path / "posts"
    path.write_text(text)
    result = load("--source", f"{kind}:{path}", "--pattern", "p|<poster>|<time:4>")
    assert result.exit_code == 0, result.stderr
    assert client.scan(prefix="p|") == [(b"p|ann|0007", b"one"), (b"p|bob|0012", b"")]
    assert client.scan(prefix="t|liz|") == [(b"t|liz|0007|ann", b"one")]


def test_sums_count_numbers_of_every_size(load: Load, client: Client, tmp_path: Path) -> None:
    """Spark reads the larger ones as doubles, whose own text has an exponent."""
    client.add_join("total|<account> = sum paid|<account>|<number>")
    path = tmp_path / "paid.jsonl"
    numbers = ["1e15", "1000000000000000.5", "0.1", "2.5e22", "123456789012345.67"]
    lines = (f'{{"account": "ann", "number": {at}, "value": {number}}}\n' for at, number in enumerate(numbers))
    path.write_text("".join(lines))
    result = load("--source", f"jsonl:{path}", "--pattern", "paid|<account>|<number:2>")
    assert result.exit_code == 0, result.stderr
    assert client.get("total|ann") == f"{sum(map(Decimal, numbers)):f}".rstrip("0").encode()


@pytest.mark.parametrize("few_bytes", [0, 1 << 20])
@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        ("csv", "k,\\q", "a backslash must stand as"),
        ("jsonl", '{"key": "k"}', 'it must be {"key": ..., "value": ...}'),
    ],
)
def test_a_row_that_cannot_be_read_ends_it_before_anything_is_written(
    load: Load,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    bad: str,
    message: str,
    few_bytes: int,
) -> None:
    monkeypatch.setattr(loading, "FEW_BYTES", few_bytes)
    line = "k%d,v" if kind == "csv" else '{"key": "k%d", "value": "v"}'
    lines = ["key,value"] if kind == "csv" else []
    path = tmp_path / "rows"
    path.write_text("\n".join([*lines, *(line % number for number in range(300)), bad]) + "\n")
    result = load("--source", f"{kind}:{path}")
    assert result.exit_code == 3
    assert message in result.stderr, result.stderr
    assert client.count() == 0


def test_a_dry_run_writes_nothing(load: Load, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value\na,1\nb,2\n")
    result = load("--source", f"csv:{path}", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "pequod: 2 rows can be written\n")
    assert client.count() == 0


def test_a_source_that_is_none_is_refused(load: Load) -> None:
    result = load("--source", "posts.csv")
    assert result.exit_code == 2
    assert "--source is parquet:PATH or csv:PATH or jsonl:PATH, not 'posts.csv'" in result.stderr
