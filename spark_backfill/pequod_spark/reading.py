"""Rows of a server as a DataFrame: each range cut where the server says, a task for each part.

The data source `pequod` would do for one range. Spark starts Python processes to plan each of its reads, which for many
ranges takes longer than the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from pyspark.sql import DataFrame, SparkSession

from pequod.calls import Row
from pequod.client import Client
from pequod.engine.ranges import Range
from pequod_spark.connection import Connection


def read_ranges(spark: SparkSession, connection: Connection, ranges: Sequence[Range]) -> DataFrame:
    """Return the rows of ranges that do not overlap, each read in order, chunk by chunk, when the DataFrame is used."""

    def fetch(part: Iterable[Range]) -> Iterator[Row]:
        with connection.client() as client:
            for first, last in part:
                yield from client.scan_iter(first, last)

    with connection.client() as client:
        parts = cut_ranges(client, ranges, spark.sparkContext.defaultParallelism)
    asked = spark.sparkContext.parallelize(parts, max(1, len(parts)))
    return spark.createDataFrame(asked.mapPartitions(fetch), "key binary, value binary", verifySchema=False)


def cut_ranges(client: Client, ranges: Iterable[Range], part_count: int) -> list[Range]:
    """Cut each range into about so many parts of about equal numbers of rows, as the server sees them now."""
    return [
        Range(start, stop)
        for first, last in ranges
        for start, stop in pairwise([first, *client.splits(part_count, first, last), last])
    ]
