"""Streams: the changes of a range into a table, and back into a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pequod_spark.connection import Connection
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType
from pyspark_pequod.columns import RowColumns
from pyspark_pequod.options import key_pattern
from pyspark_pequod.stream import StreamReader

from pequod.client import Client
from pequod.errors import WatchCompactedError
from tests.spark.served import served

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
SCHEMA = StructType(
    [StructField("time", StringType()), StructField("value", BinaryType()), StructField("old", BinaryType())]
)
PATTERN = key_pattern({"pattern": "t|ann|<time:4>|<poster>"})


@pytest.fixture
def target() -> Iterator[str]:
    with served() as target:
        with Client(target) as client:
            client.add_join(TIMELINE)
            client.multi_put({"s|ann|bob": "1", "p|bob|0001": "one"})
        yield target


@contextmanager
def reading(target: str, *, starts_anew: bool = False) -> Iterator[StreamReader]:
    columns = RowColumns(SCHEMA, PATTERN, more=("old", "revision"))
    reader = StreamReader(Connection(target), columns, b"t|ann|", b"t|ann}", starts_anew=starts_anew)
    yield reader
    if reader._watching is not None:
        reader._watching.close()


def told(reader: StreamReader, start: dict[str, Any]) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """Return what is told next, as soon as something is."""
    while True:
        rows, end = reader.read(start)
        if found := list(rows):
            return found, end


def test_the_rows_come_first_and_then_each_change(target: str) -> None:
    with Client(target) as client, reading(target) as reader:
        rows, first = told(reader, reader.initialOffset())
        assert rows == [("0001", b"one", None)]
        client.put("p|bob|0001", "won")
        rows, second = told(reader, first)
        assert rows == [("0001", b"won", b"one")]
        client.remove("p|bob|0001")
        assert told(reader, second)[0] == [("0001", None, b"won")]


def test_a_query_goes_on_where_it_was(target: str) -> None:
    with Client(target) as client:
        with reading(target) as reader:
            _, start = told(reader, reader.initialOffset())
            client.put("p|bob|0002", "two")
            rows, end = told(reader, start)
        client.put("p|bob|0003", "three")
        with reading(target) as reader:
            assert list(reader.readBetweenOffsets(start, end)) == rows
            assert told(reader, end)[0] == [("0003", b"three", None)]


def test_what_is_not_kept_any_more_is_an_error_or_a_new_beginning(target: str) -> None:
    with reading(target) as reader:
        _, start = told(reader, reader.initialOffset())
    gone = {**start, "server_id": start["server_id"] ^ 1}
    with reading(target) as reader, pytest.raises(WatchCompactedError, match="started anew"):
        reader.read(gone)
    with reading(target, starts_anew=True) as reader:
        assert told(reader, gone)[0] == [("0001", b"one", None)]
        assert list(reader.readBetweenOffsets({}, start)) == [("0001", b"one", None)]
    with reading(target) as reader, pytest.raises(WatchCompactedError, match="a moment that is gone"):
        reader.readBetweenOffsets({}, start)


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
