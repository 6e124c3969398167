"""Streaming reads: the rows of ranges first, then their changes as they happen, in as many tasks as are asked for.

    a watch on the driver --> a batch --> cut by keys --> a task takes each part's keys apart, types its columns

The driver follows the ranges, and the tasks get what they work on with their part: they ask no server. So a task that
Spark runs again gives the same rows, whatever the server still keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pequod_spark.tasks import freeze_imports
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_pequod.batches import Batches
from pyspark_pequod.columns import RowColumns
from pyspark_pequod.limits import Budget
from pyspark_pequod.places import Offset
from pyspark_pequod.told import cut, packed, unpacked


class ToldPart(InputPartition):
    """The rows of one task."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the rows and then the changes of ranges.

    Args:
        part_count: The number of tasks of a batch with as many keys; None: as few as make sense.
        rows_max: The rows of a batch; None for no limit.
        bytes_max: The bytes of its keys and values.

    Raises:
        WatchCompactedError: From any method: the server does not have the changes any more.
    """

    def __init__(
        self,
        batches: Batches,
        columns: RowColumns,
        part_count: int | None,
        rows_max: int | None,
        bytes_max: int,
    ) -> None:
        self._batches = batches
        self._columns = columns
        self._part_count = part_count
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Begin with the rows of the ranges."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options; Spark has one number for it, so that of the bytes is ours to keep."""
        return ReadMaxBytes(self._bytes_max) if self._rows_max is None else ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End with the present state."""
        self._batches.end_with_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        if isinstance(limit, ReadAllAvailable):
            return self._batches.plan(start, Budget())
        return self._batches.plan(start, Budget(self._rows_max, self._bytes_max))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the newest state that the server has told of, for the query's progress."""
        return self._batches.newest()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the parts of a batch."""
        table = self._batches.between(start, end)
        return [ToldPart(packed(part)) for part in cut(table, self._part_count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part."""
        freeze_imports()
        assert isinstance(partition, ToldPart)
        for columns in unpacked(partition.content):
            yield self._columns.batch_of(columns)

    def commit(self, end: Offset) -> None:
        """Forget the batches that are done."""
        self._batches.commit(end)

    def stop(self) -> None:
        """Follow the ranges no more."""
        self._batches.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: no watch."""
        return {"_columns": self._columns}
