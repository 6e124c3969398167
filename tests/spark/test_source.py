"""The data source `pequod` against a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pequod_spark.connection import Connection
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pequod import register
from pyspark_pequod.packing import Packing
from pyspark_pequod.writer import TaskWriter

from pequod.client import Client
from tests.spark.served import served

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server with 2,000 posts, and a timeline of a quarter of them."""
    with served() as target:
        with Client(target) as client:
            client.add_join(TIMELINE)
            client.multi_put({f"p|u{number % 20:02d}|{number:04d}": f"tweet {number}" for number in range(2000)})
            client.multi_put({f"s|ann|u{number:02d}": "1" for number in range(5)})
            client.multi_put({b"p|u\xff|9999": b"\xff", b"odd": b"1"})
        yield target


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
    with Client(target) as client:
        client.put("s|liz|u01", "1")
        found = rows(reading.option("first", "t|liz|0100").option("last", "t|liz|0300").load())
        assert found == client.scan("t|liz|0100", "t|liz|0300")
        assert len(found) == 10


def test_conditions_on_the_key_are_met(reading: DataFrameReader, target: str) -> None:
    key = f.col("key")
    between = (key >= f.lit(b"p|u03|")) & (key < f.lit(b"p|u04|")) & (key != f.lit(b"p|u03|0003"))
    with Client(target) as client:
        assert rows(reading.load().where(between)) == client.scan("p|u03|0004", "p|u04|")


def test_keys_are_taken_apart_into_slots(reading: DataFrameReader) -> None:
    frame = reading.option("pattern", "p|<poster:3>|<time:4>").load()
    assert frame.columns == ["key", "poster", "time", "value"]
    row = frame.where("poster = 'u07' and time >= '1900' and time < '1920'").first()
    assert row is not None
    assert (bytes(row.key), row.poster, row.time, bytes(row.value)) == (b"p|u07|1907", "u07", "1907", b"tweet 1907")


def test_columns_have_the_types_that_the_schema_says(reading: DataFrameReader) -> None:
    frame = reading.option("pattern", "p|<poster:3>|<time:4>").schema("value string, time int").load()
    assert [tuple(row) for row in frame.where("time = 17").collect()] == [("tweet 17", 17)]


def test_a_bad_option_is_refused_in_words(reading: DataFrameReader) -> None:
    with pytest.raises(AnalysisException, match=r"did you mean 'prefix'\?"):
        reading.option("prefx", "p|").load()


def test_a_server_that_is_not_there_is_named(spark: SparkSession) -> None:
    frame = spark.read.format("pequod").option("target", "127.0.0.1:1").option("timeout", "1").load()
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1"):
        frame.collect()


def test_what_is_written_is_there_and_joins_know_of_it(spark: SparkSession, target: str) -> None:
    frame = spark.range(500).select(
        f.concat(f.lit("w"), f.col("id") % 5).alias("poster"),
        f.col("id").alias("time"),
        f.concat(f.lit("tweet "), f.col("id")).alias("value"),
    )
    with Client(target) as client:
        client.put("s|bob|w3", "1")
        assert client.scan(prefix="t|bob|") == []
        for _ in range(2):
            writing = frame.write.format("pequod").option("target", target).option("pattern", "p|<poster>|<time:4>")
            writing.mode("append").save()
            assert client.count(prefix="p|w") == 500
        assert client.get("p|w3|0498") == b"tweet 498"
        timeline = client.scan(prefix="t|bob|")
        assert timeline == [(b"t|bob|%04d|w3" % time, b"tweet %d" % time) for time in range(3, 500, 5)]


def test_a_row_that_is_wrong_is_named_and_its_task_writes_nothing(spark: SparkSession, target: str) -> None:
    frame = (
        spark.range(100)
        .coalesce(1)
        .select(f.concat(f.lit("bad|"), f.col("id")).alias("key"), f.when(f.col("id") != 77, f.lit("1")).alias("value"))
    )
    with pytest.raises(PythonException, match=r"column 'value': it is null, in the row key='bad\|77'"):
        frame.write.format("pequod").option("target", target).mode("append").save()
    with Client(target) as client:
        assert client.count(prefix="bad|") == 0


def test_a_computed_key_is_refused(spark: SparkSession, target: str) -> None:
    frame = spark.createDataFrame([("t|ann|0001|bob", "1")], "key string, value string")
    with pytest.raises(PythonException, match="is computed by the join"):
        frame.write.format("pequod").option("target", target).mode("append").save()


def test_nulls_remove_keys_if_asked_to(spark: SparkSession, target: str) -> None:
    rows = [(f"gone|{number:05d}", "1" if number % 3 else None) for number in range(9000)]
    frame = spark.createDataFrame(rows, "key string, value string").coalesce(1)
    writing = frame.write.format("pequod").option("target", target)
    with Client(target) as client:
        client.multi_put({key: "0" for key, _ in rows})
        with pytest.raises(PythonException, match="column 'value': it is null, in the row key='gone"):
            writing.mode("append").save()
        writing.option("nulls", "remove").mode("append").save()
        assert client.scan(prefix="gone|") == [(key.encode(), b"1") for key, value in rows if value]


def test_a_computed_key_is_not_removed(spark: SparkSession, target: str) -> None:
    frame = spark.createDataFrame([("t|ann|0001|bob", None)], "key string, value string")
    with pytest.raises(PythonException, match="is computed by the join"):
        frame.write.format("pequod").options(target=target, nulls="remove").mode("append").save()


def test_a_task_keeps_to_its_rows_a_second(target: str) -> None:
    """It may begin at once; the last of its messages waits for those before."""
    batch = pa.RecordBatch.from_pylist([{"key": b"slow|%03d" % number, "value": b""} for number in range(300)])
    schema = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
    task = TaskWriter(Connection(target), Packing(schema, None), rows_per_s=1000)
    begin_s = time.monotonic()
    assert task.write(iter([batch])).row_count == 300
    assert time.monotonic() - begin_s >= 0.2
    with Client(target) as client:
        assert client.count(prefix="slow|") == 300


def test_a_session_s_settings_say_where_the_server_is(spark: SparkSession, target: str, tmp_path: Path) -> None:
    """A read names its range alone, and neither plans nor what Spark tells of its jobs shows a token."""
    token = tmp_path / "token"
    token.write_text("very-secret-1")
    settings = {"spark.pequod.target": target, "spark.pequod.token_file": str(token)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        register(spark)
        posts = spark.read.format("pequod").option("partitions", 2).load("p|u03|")
        assert posts.count() == 100
        given = spark.read.format("pequod").option("token", "very-secret-2").load("odd")
        given.selectExpr("concat(key, key) key", "value").write.format("pequod").mode("append").save()
        spark.sql("create or replace temporary view odd using pequod options (prefix 'odd', token 'very-secret-2')")
        shown = [spark.sql("select * from odd")._jdf, posts._jdf, given._jdf]
        told = [frame.queryExecution().toString() for frame in shown]
    finally:
        for name in settings:
            spark.conf.unset(name)
        register(spark)
    assert spark._jsparkSession is not None
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    latest = range(executions.size() - 3, executions.size())
    told += [executions.apply(at).physicalPlanDescription() for at in latest]
    assert not any("very-secret" in text for text in told)
