"""Rows of a server as a DataFrame, a task for each range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession

from pequod.calls import Row
from pequod.engine.ranges import Range
from pequod_spark.connection import Connection


def read_ranges(spark: SparkSession, connection: Connection, ranges: Sequence[Range]) -> DataFrame:
    """Return the rows of ranges that do not overlap, each read in order, chunk by chunk, when the DataFrame is used."""

    def fetch(part: Iterable[Range]) -> Iterator[Row]:
        with connection.client() as client:
            for first, last in part:
                yield from client.scan_iter(first, last)

    asked = spark.sparkContext.parallelize(ranges, max(1, len(ranges)))
    return spark.createDataFrame(asked.mapPartitions(fetch), "key binary, value binary", verifySchema=False)
