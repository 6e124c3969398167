"""Actual rows compared with expected rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f


class Difference(NamedTuple):
    """A key whose value is not as expected; None where the key is absent."""

    key: bytes
    have: bytes | None
    want: bytes | None


@dataclass(frozen=True, slots=True)
class RowComparison:
    """The result of a comparison.

    Invariants:
        1. ``differences`` has the columns ``key``, ``have`` and ``want``, and does not change any more.
    """

    #: The number of keys on either side.
    key_count: int
    difference_count: int
    differences: DataFrame

    def __iter__(self) -> Iterator[Difference]:
        """Yield the differences in key order."""
        if not self.difference_count:
            return
        for row in self.differences.orderBy("key").toLocalIterator():
            yield Difference(*(None if value is None else bytes(value) for value in row))  # type: ignore[arg-type]


def compare(have: DataFrame, want: DataFrame) -> RowComparison:
    """Compare rows by key."""
    left = have.select("key", f.col("value").alias("have"))
    right = want.select("key", f.col("value").alias("want"))
    counted = Observation()
    differs = ~f.col("have").eqNullSafe(f.col("want"))
    both = left.join(right, "key", "full_outer").observe(
        counted, f.count("*").alias("keys"), f.count_if(differs).alias("differences")
    )
    differences = kept(both.where(differs))
    return RowComparison(counted.get["keys"], counted.get["differences"], differences)


def kept(rows: DataFrame) -> DataFrame:
    """Compute rows and keep them: if some are lost, that is an error, and they are never computed again."""
    return rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
