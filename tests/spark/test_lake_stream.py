"""Batches of a stream from a lake: what each has, where it ends, and how long it can be read."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pequod_lake import IngestLimits, Lake
from pequod_lake.errors import LakeSchemaError, LeaseLostError
from pequod_lake.history import ScuGoneError
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType, TimestampNTZType
from pyspark_pequod_lake.stream import LakeStreamReader
from pyspark_pequod_lake.tables import LakeTableReader

from tests.lake.empty import empty_lake

SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user" }

[[table]]
name = "timed"
key = ["id"]
timestamp = "at"
columns = { id = "int64", at = "int64" }

[[table]]
name = "parts"
key = ["id", "part"]
partial = true
timestamp = "at"
columns = { id = "int64", part = "int64", at = "timestamp", x = "int64", y = "int64" }
"""
KINDS = {"author": StringType(), "op": StringType()}
Offset = dict[str, int]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with empty_lake(tmp_path / "lake", SCHEMA) as lake:
        yield lake


def put(lake: Lake, table: str, rows: dict[str, list[Any]], gone: dict[str, list[Any]] | None = None) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        upload = ingestor.upload(str(lake.catalog.snapshot().scu))
        if rows:
            upload.put(table, rows)
        if gone is not None:
            upload.delete(table, gone)
        ingestor.take(upload)


def compact(lake: Lake) -> None:
    worker = lake.worker()
    worker.compact()
    worker.close()


def reader(lake: Lake, table: str, columns: str, **options: str) -> LakeStreamReader:
    schema = StructType()
    for name in columns.split():
        is_moment = (table, name) == ("parts", "at")
        schema.add(name, TimestampNTZType() if is_moment else KINDS.get(name, LongType()))
    return LakeStreamReader({"path": str(lake.folder), "table": table, **options}, schema)


def rows(reader: LakeStreamReader, start: Offset, end: Offset) -> list[tuple[Any, ...]]:
    """Return the rows of a batch as tasks read them, which get a copy of the reader."""
    parts, task = reader.partitions(start, end), pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in task.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def follow(lake: Lake, table: str, columns: str, **options: str) -> list[tuple[Any, ...]]:
    """Return the rows of the first batch after SCU 0."""
    stream = reader(lake, table, columns, start="scu:0", **options)
    start = stream.initialOffset()
    found = rows(stream, start, stream.latestOffset(start, stream.getDefaultReadLimit()))
    stream.stop()
    return found


def test_the_state_comes_first_and_then_each_scu(lake: Lake) -> None:
    put(lake, "posts", {"id": [1, 2], "author": ["ann", "bob"]})
    compact(lake)
    put(lake, "posts", {"id": [2], "author": ["cy"]})
    stream = reader(lake, "posts", "op n id author", operation_column="op", scu_column="n")
    nothing = stream.initialOffset()
    first = stream.latestOffset(nothing, stream.getDefaultReadLimit())
    assert rows(stream, nothing, first) == [("insert", 2, 1, "ann"), ("insert", 2, 2, "cy")]
    put(lake, "posts", {"id": [3, 1], "author": ["ann", None]}, {"id": [2]})
    put(lake, "timed", {"id": [1], "at": [1]})
    second = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert (first, second, stream.reportLatestOffset()) == ({"scu": 2}, {"scu": 4}, {"scu": 4})
    found = [("update", 3, 3, "ann"), ("update", 3, 1, None), ("delete", 3, 2, None)]
    assert rows(stream, first, second) == found
    # The same batch after a restart, when everything has been merged.
    compact(lake)
    again = reader(lake, "posts", "op n id author", operation_column="op", scu_column="n", start="newest")
    assert again.initialOffset() == second
    assert rows(again, first, second) == found
    for one in (stream, again):
        one.stop()
    assert lake.place.files.listed("leases") == []


def test_batches_end_at_their_limits_and_available_now_at_its_start(lake: Lake) -> None:
    for number in range(5):
        put(lake, "timed", {"id": [1, 2], "at": [number, number]})
    start = {"scu": 0}
    for options, end in (({"rows_per_batch": "5"}, 2), ({"rows_per_batch": "1"}, 1), ({"scus_per_batch": "3"}, 3)):
        stream = reader(lake, "timed", "id", **options)
        assert stream.latestOffset(start, stream.getDefaultReadLimit()) == {"scu": end}, options
        stream.stop()
    stream = reader(lake, "timed", "id", scus_per_batch="3")
    assert stream.latestOffset(start, ReadAllAvailable()) == {"scu": 5}
    stream.prepareForTriggerAvailableNow()
    put(lake, "timed", {"id": [3], "at": [9]})
    assert stream.latestOffset({"scu": 3}, stream.getDefaultReadLimit()) == {"scu": 5}
    assert stream.latestOffset({"scu": 5}, stream.getDefaultReadLimit()) == {"scu": 5}
    stream.stop()


def test_deletions_have_their_moments_and_need_a_column(lake: Lake) -> None:
    put(lake, "timed", {"id": [1], "at": [5]}, {"id": [2], "at": [6]})
    assert follow(lake, "timed", "id at op", operation_column="op") == [(1, 5, "update"), (2, 6, "delete")]
    assert follow(lake, "timed", "op", operation_column="op") == [("update",), ("delete",)]
    with pytest.raises(LakeSchemaError, match="SCU 1 deletes rows; set the option `operation_column`"):
        follow(lake, "timed", "id at")


def test_partial_rows_come_whole(lake: Lake) -> None:
    put(lake, "parts", {"id": [1, 1, 2], "part": [1, 2, 1], "at": [5, 5, 5], "x": [1, 2, 3]})
    put(lake, "parts", {"id": [1], "part": [1], "at": [6], "y": [9]}, {"id": [2], "part": [1], "at": [7]})
    found = follow(lake, "parts", "id part x y op", operation_column="op", partitions="1")
    assert sorted(set(found), key=repr) == [
        (1, 1, 1, 9, "update"),
        (1, 2, 2, None, "update"),
        (2, 1, None, None, "delete"),
    ]
    moments = {row[:2]: row[2].microsecond for row in follow(lake, "parts", "id part at op", operation_column="op")}
    assert moments == {(1, 1): 6, (1, 2): 5, (2, 1): 7}


def test_a_stream_that_falls_behind_fails_and_a_batch_under_way_does_not(lake: Lake) -> None:
    put(lake, "posts", {"id": [1], "author": ["ann"]})
    stream = reader(lake, "posts", "id", start="scu:0")
    parts = stream.partitions({"scu": 0}, {"scu": 1})
    put(lake, "posts", {"id": [2], "author": ["ann"]})
    compact(lake)
    lake.expire(0)
    assert [row for part in parts for batch in stream.read(part) for row in batch["id"].to_pylist()] == [1]
    with pytest.raises(ScuGoneError, match="SCU 1 as they came are not kept"):
        stream.latestOffset({"scu": 0}, stream.getDefaultReadLimit())
    stream.commit({"scu": 1})
    lake.expire(0)
    with pytest.raises(LeaseLostError, match="begin again"):
        list(stream.read(parts[0]))
    stream.stop()


def test_a_read_keeps_its_state_while_its_tasks_run(lake: Lake) -> None:
    put(lake, "posts", {"id": [1], "author": ["ann"]})
    read = LakeTableReader({"path": str(lake.folder), "table": "posts"}, StructType().add("author", StringType()))
    parts, task = read.partitions(), pickle.loads(pickle.dumps(read))
    put(lake, "posts", {"id": [1], "author": ["bob"]})
    compact(lake)
    lake.expire(0)
    assert [row for part in parts for batch in task.read(part) for row in batch["author"].to_pylist()] == ["ann"]
