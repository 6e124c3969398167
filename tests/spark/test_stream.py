"""Streams: the changes of a range into a table, and back into a server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from pyspark_pequod.columns import RowColumns

from pequod.client import Client
from tests.lake.empty import empty_lake
from tests.spark.served import served, served_timeline

IS_SPARK_4_1 = find_spec("pyspark.sql.streaming.datasource") is None


@pytest.fixture
def target() -> Iterator[str]:
    with served_timeline() as target:
        yield target


def test_a_stream_of_changes_is_written_back(spark: SparkSession, target: str, tmp_path: Path) -> None:
    changes = (
        spark.readStream.format("pequod")
        .options(target=target, pattern="t|<user>|<time:4>|<poster>")
        .schema("user string, time string, poster string, value string")
        .load()
    )
    writing = changes.where("value is not null").writeStream.format("pequod")
    writing = writing.options(target=target, pattern="copy|<user>|<time:4>|<poster>")
    with Client(target) as client:
        for number in range(2):
            query = writing.option("checkpointLocation", str(tmp_path / "at")).start()
            try:
                query.processAllAvailable()
                client.put(f"p|bob|001{number}", "new")
                watch = client.watch("copy|", "copy}", rows=True)
                seen = len((next(watch).rows or ([], []))[0])
                while seen < 2 + number:
                    seen += len(next(watch).changes)
                watch.close()
            finally:
                query.stop()
        assert [key for key, _ in client.scan(prefix="copy|")] == [
            b"copy|ann|0001|bob",
            b"copy|ann|0010|bob",
            b"copy|ann|0011|bob",
        ]


@pytest.mark.skipif(IS_SPARK_4_1, reason="PySpark 4.1 has one task for a batch")
def test_a_batch_is_read_by_as_many_tasks_and_holds_as_many_rows_as_is_asked(
    spark: SparkSession, target: str, tmp_path: Path
) -> None:
    """Of two ranges and their changes; a restarted query goes on, each key's changes come once and in order."""
    reading = spark.readStream.format("pequod").options(target=target, prefix='["p|", "s|"]', partitions=3)
    changes = reading.option("maxRowsPerTrigger", 40).schema("key string, value string, old string").load()
    told: list[tuple[str, str | None, str | None]] = []
    parts: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        parts.append(batch.rdd.getNumPartitions())
        told.extend(tuple(row) for row in batch.collect())

    place = str(tmp_path / "at")
    copy: dict[str, str] = {}
    with Client(target) as client:
        client.multi_put({f"p|tom|{number:04d}": "0" for number in range(60)})
        for change in ("1", "2"):
            query = (
                changes.writeStream.foreachBatch(take)
                .trigger(availableNow=True)
                .option("checkpointLocation", place)
                .start()
            )
            query.awaitTermination()
            assert parts == [3] * len(parts)
            # The first time 62 rows, the second time 61 changes.
            assert next(each.numInputRows for each in query.recentProgress if each.numInputRows) == 40
            source = query.recentProgress[-1].sources[0]
            assert json.loads(source.endOffset)["0"]["revision"] <= json.loads(source.latestOffset)["0"]["revision"]
            client.multi_put({f"p|tom|{number:04d}": change for number in range(60)})
            client.remove("s|ann|bob")
        for key, value, old in told:
            assert copy.get(key) == old
            copy.pop(key, None)
            if value is not None:
                copy[key] = value
        assert len(told) == 62 + 61
        assert copy == {"p|bob|0001": "one"} | {f"p|tom|{number:04d}": "1" for number in range(60)}


@pytest.mark.skipif(not IS_SPARK_4_1, reason="PySpark streams from lakes since 4.2")
def test_a_stream_from_a_lake_says_which_spark_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    schema = '[[table]]\nname = "posts"\nkey = ["id"]\ncolumns = { id = "int64" }\n'
    with empty_lake(tmp_path / "lake", schema):
        rows = spark.readStream.format("pequod_lake").options(path=str(tmp_path / "lake"), table="posts").load()
        with pytest.raises(StreamingQueryException, match=r"a stream of a lake needs PySpark 4\.2 or newer"):
            rows.writeStream.format("noop").start().awaitTermination()


def test_columns_of_a_stream() -> None:
    schema = StructType([StructField("revision", LongType()), StructField("key", BinaryType())])
    batch = RowColumns(schema, None, more=("old", "revision")).batch_of({"key": [b"k"], "revision": [7]})
    assert batch.to_pylist() == [{"revision": 7, "key": b"k"}]


def test_the_changes_of_one_server_are_written_to_another(spark: SparkSession, target: str, tmp_path: Path) -> None:
    """Rows that were there, puts, and removals; of several changes of a key the last."""
    feed = spark.readStream.format("pequod").option("target", target).load("p|")
    with served() as copy, Client(target) as client, Client(copy) as reader:
        client.multi_put({"p|bob|0002": "two", "p|liz|0001": "one"})
        writing = feed.writeStream.format("pequod").options(target=copy, nulls="remove")
        query = writing.option("checkpointLocation", str(tmp_path / "at")).start()
        try:
            query.processAllAvailable()
            client.put("p|bob|0002", "never seen")
            client.remove("p|bob|0002")
            client.remove("p|liz|0001")
            client.put("p|liz|0001", "again")
            client.put("p|tom|0001", "new")
            while reader.get("p|tom|0001") is None or reader.get("p|bob|0002") is not None:
                if (error := query.exception()) is not None:
                    raise error
                time.sleep(0.05)
            assert reader.scan(prefix="p|") == client.scan(prefix="p|")
        finally:
            query.stop()


def test_an_aggregate_is_kept_by_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses the output mode `update` for sinks in Python; a put replaces the value of its key."""
    source = tmp_path / "source"
    for number in range(2):
        posts = spark.createDataFrame(
            [("ann", f"{number}{post}") for post in range(3 + number)], "user string, post string"
        )
        posts.coalesce(1).write.mode("append").json(str(source))
    counts = spark.readStream.schema("user string, post string").option("maxFilesPerTrigger", 1).json(str(source))
    counts = counts.groupBy("user").count().withColumnRenamed("count", "value")

    with served() as target, Client(target) as client:
        told = []

        def write(batch: DataFrame, _: int) -> None:
            batch.write.format("pequod").options(target=target, pattern="n|<user>").mode("append").save()
            told.append(client.get("n|ann"))

        query = counts.writeStream.outputMode("update").foreachBatch(write).trigger(availableNow=True).start()
        query.awaitTermination()
        assert told in ([b"3", b"7"], [b"4", b"7"])
        sink = counts.writeStream.format("pequod").options(target=target, pattern="n|<user>")
        for mode, said in (
            ("update", "does not support Update mode"),
            ("complete", "write each batch with `foreachBatch`"),
        ):
            with pytest.raises(StreamingQueryException, match=said):
                sink.outputMode(mode).option("checkpointLocation", str(tmp_path / mode)).start().awaitTermination()
