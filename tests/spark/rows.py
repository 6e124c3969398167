"""Rows to DataFrames and back."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])


def frame_of(spark: SparkSession, rows: Mapping[bytes, bytes]) -> DataFrame:
    """Return rows as a DataFrame."""
    return spark.createDataFrame(pa.table([list(rows), list(rows.values())], schema=SCHEMA))


def rows_of(frame: DataFrame) -> list[tuple[bytes, bytes]]:
    """Return the rows of a DataFrame by key; a key that is there twice comes out twice."""
    table = frame.select("key", "value").toArrow()
    return sorted(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
