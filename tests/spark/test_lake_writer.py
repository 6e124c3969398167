"""Spark writes a lake and follows it: each row once, whatever is killed; what does not fit is refused at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake
from pequod_lake.errors import LakeError, LakeSchemaError, UploadRefusedError
from pequod_lake.history import committed_scus
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark_pequod_lake.source import DefaultSource
from pyspark_pequod_lake.stream import LakeStreamReader
from pyspark_pequod_lake.writer import BatchWriter, StreamWriter

from tests.lake.empty import empty_lake
from tests.spark import dying

SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user", body = "text" }

[[table]]
name = "parts"
key = ["k"]
partial = true
timestamp = "at"
columns = { k = "text", at = "timestamp", x = "double", y = "bytes" }
"""
POSTS = "id bigint, author string, body string"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with empty_lake(tmp_path / "lake", SCHEMA) as lake:
        yield lake


def ddl(text: str) -> StructType:
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return schema


def posts(lake: Lake) -> list[tuple[int, str, str]]:
    with lake.snapshot() as snapshot:
        return [tuple(row.values()) for row in snapshot.scan("posts").rows.to_pylist()]


def taken(lake: Lake) -> int:
    """Return how many rows all SCUs brought."""
    scus = committed_scus(lake.catalog, 0, lake.status().scu)
    return sum(one.row_count("posts") for one in scus)


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(6, numPartitions=2).selectExpr("id", "concat('u', id % 2) author", "'b' body")


def write(rows: DataFrame, lake: Lake, form: str = "pequod_lake", **options: str) -> None:
    rows.write.format(form).options(path=str(lake.folder), table="posts", **options).mode("append").save()


@pytest.mark.parametrize("moment", dying.MOMENTS)
def test_a_job_that_is_killed_and_run_again_is_taken_once(
    spark: SparkSession, lake: Lake, tmp_path: Path, moment: str
) -> None:
    dying.register(spark, tmp_path / "died", moment)
    with pytest.raises((PySparkException, Py4JJavaError)):
        write(rows(spark), lake, dying.FORMAT, upload="nightly")
    assert (tmp_path / "died").exists()
    assert taken(lake) == (6 if moment == "after" else 0)
    write(rows(spark), lake, upload="nightly")
    assert taken(lake) == 6
    assert posts(lake) == [(number, f"u{number % 2}", "b") for number in range(6)]
    # A task may have staged a file after its job had been ended.
    for path, moment_s in lake.place.files.listed("staging"):
        os.utime(lake.folder / path, (moment_s - 1000, moment_s - 1000))
    assert all(path.startswith("staging/") for path in lake.expire(0)[1])
    assert lake.place.files.listed("staging") == []


def test_operations_of_rows_and_of_streams_go_from_lake_to_lake(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for number, gone in enumerate(([], [0, 7], [2])):
            upload = ingestor.upload(f"u{number}")
            ids = [number, number + 7, 20]
            upload.put("posts", {"id": ids, "author": ["ann"] * 3, "body": [f"b{number}"] * 3})
            upload.delete("posts", {"id": gone})
            ingestor.take(upload)
    source = {"path": str(lake.folder), "table": "posts", "operation_column": "op", "scus_per_batch": "1"}
    with empty_lake(tmp_path / "copy", SCHEMA) as copy:

        def follow(form: str, start: str) -> None:
            read = spark.readStream.format("pequod_lake").options(**source, start=start).load()
            sink = read.writeStream.format(form).options(
                path=str(copy.folder), table="posts", operation_column="op", checkpointLocation=str(tmp_path / "point")
            )
            sink.trigger(availableNow=True).start().awaitTermination()

        # The first batch is killed in a task, before its commit and after it; the others come after a restart.
        for moment in dying.MOMENTS:
            dying.register(spark, tmp_path / moment, moment)
            with pytest.raises(StreamingQueryException):
                follow(dying.FORMAT, "scu:0")
        follow("pequod_lake", "scu:0")
        assert posts(copy) == posts(lake) == [(1, "ann", "b1"), (8, "ann", "b1"), (9, "ann", "b2"), (20, "ann", "b2")]
        assert (taken(copy), copy.status().scu) == (taken(lake), 3), "each SCU became one"


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"table": "posts", "tabel": "x"}, POSTS, "'tabel' is no option; did you mean 'table'"),
        ({"table": "posts", "freshness": "1s"}, POSTS, "'freshness' is no option of a write"),
        ({"table": "no"}, POSTS, "the lake has no table 'no'; it has posts, parts"),
        ({}, POSTS, "`table` are needed"),
        ({"table": "posts", "lease": "1"}, POSTS, "`lease` is '1'; it is a number of seconds"),
        ({"table": "posts", "upload": "x" * 300}, POSTS, "1 to 256 bytes"),
        ({"table": "posts", "operation_column": "body"}, POSTS, "'body', a column of the table"),
        ({"table": "posts", "operation_column": "op"}, POSTS, "the column op is missing"),
        ({"table": "posts", "operation_column": "op"}, POSTS + ", op int", "op holds operations, so it is a string"),
        ({"table": "posts"}, "id bigint, author string", "the column body is missing"),
        ({"table": "posts"}, POSTS + ", more int", "'more' is no column; there are id, author, body"),
        ({"table": "posts"}, POSTS.replace("bigint", "decimal(20,0)"), "cast it to bigint first"),
        ({"table": "parts"}, "k string, x double", "the column at is missing"),
        ({"table": "parts"}, "k string, at timestamp, x bigint", "x is bigint; the lake has double: cast it"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, lake: Lake, options: dict[str, str], schema: str, message: str
) -> None:
    with pytest.raises((LakeSchemaError, UploadRefusedError), match=message):
        BatchWriter({"path": str(lake.folder), **options}, ddl(schema))
    assert lake.place.files.listed("staging") == []
    fitting = ddl("k varchar(9), at timestamp, x float, y binary")
    BatchWriter({"path": str(lake.folder), "table": "parts"}, fitting)


def test_streams_and_modes_that_cannot_be_are_refused(spark: SparkSession, lake: Lake) -> None:
    place = {"path": str(lake.folder), "table": "posts"}
    schema = ddl(POSTS)
    with pytest.raises(LakeSchemaError, match="a stream has no `upload`"):
        StreamWriter({**place, "upload": "x"}, schema)
    for name in ("writer", "streamWriter"):
        with pytest.raises(ValueError, match="in the mode append; a row replaces"):
            getattr(DefaultSource(place), name)(schema, overwrite=True)
    for options, message in (
        ({"start": "3"}, "`start` is '3'; it is state, newest"),
        ({"rows_per_batch": "0"}, "`rows_per_batch` is '0'; it is a whole number"),
        ({"where": "[]"}, "'where' is no option of a stream"),
    ):
        with pytest.raises(LakeError, match=message):
            LakeStreamReader({**place, **options}, schema)
    with pytest.raises(LakeSchemaError, match="column id is int; the lake has bigint"):
        LakeStreamReader(place, ddl("id int"))


def test_rows_that_cannot_be_taken_fail_the_job_and_leave_nothing(spark: SparkSession, lake: Lake) -> None:
    # One task: Spark does not wait for the others when it aborts a job, and what they write later is left to a sweep.
    wrong = rows(spark).selectExpr("id", "author", "body", "if(id = 4, 'upsert', 'insert') op").coalesce(1)
    with pytest.raises((PySparkException, Py4JJavaError), match="'upsert'; an operation is insert, update, delete"):
        write(wrong, lake, operation_column="op")
    assert (lake.status().scu, lake.place.files.listed("staging")) == (0, [])


def test_sql_reads_and_writes_by_a_view_and_tables_are_refused(spark: SparkSession, lake: Lake) -> None:
    options = f"USING pequod_lake OPTIONS (path '{lake.folder}', table 'posts')"
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept {options}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lake_posts {options}")
    spark.sql("INSERT INTO lake_posts VALUES (1, 'ann', 'hi'), (2, 'bob', 'ho')")
    assert posts(lake) == [(1, "ann", "hi"), (2, "bob", "ho")]
    assert [tuple(row) for row in spark.sql("SELECT body FROM lake_posts WHERE id = 2").collect()] == [("ho",)]
