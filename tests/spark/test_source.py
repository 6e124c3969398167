"""The data source `pequod` against a server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from pequod.client import Client
from tests.client.conftest import ServerProcess

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    server = ServerProcess()
    try:
        with Client(server.target) as client:
            client.add_join(TIMELINE)
            client.multi_put({f"p|u{number % 20:02d}|{number:04d}": f"tweet {number}" for number in range(2000)})
            client.multi_put({f"s|ann|u{number:02d}": "1" for number in range(5)})
            client.multi_put({b"p|u\xff|9999": b"\xff", b"odd": b"1"})
        yield server.target
    finally:
        server.kill()


@pytest.fixture
def reading(spark: SparkSession, target: str) -> DataFrameReader:
    return spark.read.format("pequod").option("target", target).option("partitions", 3)


def rows(frame: DataFrame) -> list[tuple[bytes, bytes]]:
    return sorted((bytes(row.key), bytes(row.value)) for row in frame.collect())


def test_a_range_of_base_rows_is_what_a_scan_gives(reading: DataFrameReader, target: str) -> None:
    frame = reading.option("prefix", "p|").load()
    assert frame.rdd.getNumPartitions() == 3
    with Client(target) as client:
        assert rows(frame) == client.scan(prefix="p|")


def test_computed_rows_are_computed_for_the_read(reading: DataFrameReader, target: str) -> None:
    found = rows(reading.option("first", "t|ann|0100").option("last", "t|ann|0300").load())
    with Client(target) as client:
        assert found == client.scan("t|ann|0100", "t|ann|0300")
        assert len(found) == 50


def test_conditions_on_the_key_become_the_range(reading: DataFrameReader, target: str) -> None:
    key = f.col("key")
    frame = reading.load()
    with Client(target) as client:
        between = frame.where((key >= f.lit(b"p|u03|")) & (key < f.lit(b"p|u04|")) & (key != f.lit(b"p|u03|0003")))
        assert rows(between) == client.scan("p|u03|0004", "p|u04|")
        assert rows(frame.where(key.startswith(f.lit(b"p|u05|")))) == client.scan(prefix="p|u05|")
        assert rows(frame.where(key == f.lit(b"odd"))) == [(b"odd", b"1")]
        assert rows(frame.where((key > f.lit(b"p|u03|1")) & (key <= f.lit(b"p|u03|1023")))) == client.scan(
            "p|u03|1\0", "p|u03|1024"
        )
        assert rows(frame.where((key > f.lit(b"x")) & (key < f.lit(b"b")))) == []


def test_keys_are_taken_apart_into_slots(reading: DataFrameReader) -> None:
    frame = reading.option("pattern", "p|<poster:3>|<time:4>").load()
    assert frame.columns == ["key", "poster", "time", "value"]
    row = frame.where("poster = 'u07' and time >= '1900' and time < '1920'").first()
    assert row is not None
    assert (bytes(row.key), row.poster, row.time, bytes(row.value)) == (b"p|u07|1907", "u07", "1907", b"tweet 1907")


def test_columns_have_the_types_that_the_schema_says(reading: DataFrameReader) -> None:
    frame = reading.option("pattern", "p|<poster:3>|<time:4>").schema("value string, time int").load()
    assert [tuple(row) for row in frame.where("time = 17").collect()] == [("tweet 17", 17)]


def test_without_pushdown_spark_looks_at_all_rows(spark: SparkSession, reading: DataFrameReader, target: str) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        found = rows(reading.option("prefix", "p|").load().where(f.col("key") < f.lit(b"p|u01|")))
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with Client(target) as client:
        assert found == client.scan("p|", "p|u01|")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "p|<poster"}, "option 'pattern'"),
        ({"pattern": "p|<key>"}, "a slot cannot be named 'key'"),
        ({"prefx": "p|"}, "did you mean 'prefix'?"),
        ({"prefix": "p|", "first": "p|a"}, "name the range by prefix, or by first and last"),
        ({"partitions": "0"}, "'0' is no whole number of 1 or more"),
        ({"timeout": "soon"}, "'soon' is no positive number of seconds"),
        ({"tls": "maybe"}, "'maybe' is neither true nor false"),
    ],
)
def test_a_bad_option_is_refused(reading: DataFrameReader, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisException, match=message.replace("?", r"\?")):
        reading.options(**options).load().collect()


def test_a_column_that_is_no_slot_is_refused(reading: DataFrameReader) -> None:
    with pytest.raises(AnalysisException, match="column 'poster': there is none; there are key, value; slots need"):
        reading.schema("poster string").load().collect()


def test_a_server_that_is_not_there_is_named(spark: SparkSession) -> None:
    frame = spark.read.format("pequod").option("target", "127.0.0.1:1").option("timeout", "1").load()
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        frame.collect()
