"""Rows of a server as a DataFrame: the server says where to cut each range, and a task reads each part.

The data source `pequod` does this for one range. For many ranges it would be slow: Spark starts Python processes to
plan each read of a data source, which takes longer than reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pequod.answers.rows import Rows
from pequod.client import Client
from pequod.language.ranges import Range
from pequod_spark.connection import Connection
from pequod_spark.ranges import ROW_SCHEMA
from pequod_spark.session import refuse_connect
from pequod_spark.tasks import freeze_imports


def read_ranges(spark: SparkSession, connection: Connection, ranges: Sequence[Range]) -> DataFrame:
    """Return the rows of disjoint ranges; when the DataFrame is used, tasks read them in order, chunk by chunk.

    Raises:
        ClassicSessionError: The session is a client of Spark Connect.
    """
    refuse_connect(spark, "a read of many ranges")

    def fetch(first: bytes, last: bytes) -> Iterator[Rows]:
        with connection.client() as client:
            yield from client.scan_chunks(first, last)

    with connection.client() as client:
        parts = cut_ranges(client, ranges, spark.sparkContext.defaultParallelism)
    return fetched(spark, parts, fetch)


def fetched(spark: SparkSession, parts: Sequence[Range], fetch: Callable[[bytes, bytes], Iterator[Rows]]) -> DataFrame:
    """Return the rows that ``fetch`` yields for all parts; when the DataFrame is used, a task fetches each part."""

    def fetch_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in fetch(*parts[number]):
                    columns = [pa.array(rows.keys, pa.binary()), pa.array(rows.values, pa.binary())]
                    yield pa.record_batch(columns, names=["key", "value"])

    numbers = spark.range(0, len(parts), numPartitions=max(1, len(parts)))
    return numbers.mapInArrow(fetch_parts, ROW_SCHEMA)


def cut_ranges(client: Client, ranges: Iterable[Range], part_count: int) -> list[Range]:
    """Cut each range into about ``count`` parts with equal numbers of rows, as the server counts them now."""
    return [
        Range(start, stop)
        for first, last in ranges
        for start, stop in pairwise([first, *client.splits(part_count, first, last), last])
    ]
