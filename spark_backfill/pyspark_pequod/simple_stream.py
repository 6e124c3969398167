"""Streaming reads for PySpark 4.1, in one task: there, a source that plans is not told where a batch begins.

Spark reads a copy of what `read` returns, and keeps what it copied for a second try: see `BatchRows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import SimpleDataSourceStreamReader

from pyspark_pequod.batches import Batches
from pyspark_pequod.columns import RowColumns
from pyspark_pequod.limits import Budget
from pyspark_pequod.places import Offset
from pyspark_pequod.told import packed, unpacked


class BatchRows(Iterator[tuple[Any, ...]]):
    """The rows of a batch, made when the first one is asked for.

    Spark reads each batch from a copy, by `copy.copy`, which no generator allows; a copy begins with the first row.
    The batch is not kept here: Spark keeps what was copied for longer than its commit.
    """

    def __init__(self, batches: Batches, columns: RowColumns, start: Offset, end: Offset) -> None:
        self._batches = batches
        self._columns = columns
        self._start = start
        self._end = end
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def __copy__(self) -> BatchRows:
        return BatchRows(self._batches, self._columns, self._start, self._end)

    def __next__(self) -> tuple[Any, ...]:
        if self._rows is None:
            self._rows = self._made()
        return next(self._rows)

    def _made(self) -> Iterator[tuple[Any, ...]]:
        for columns in unpacked(packed(self._batches.between(self._start, self._end))):
            batch = self._columns.batch_of(columns)
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class SimpleStreamReader(SimpleDataSourceStreamReader):
    """Reads the rows and then the changes of ranges; see `StreamReader`."""

    def __init__(self, batches: Batches, columns: RowColumns, rows_max: int | None, bytes_max: int) -> None:
        self._batches = batches
        self._columns = columns
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Begin with the rows of the ranges."""
        return {}

    def read(self, start: Offset) -> tuple[Iterator[tuple[Any, ...]], Offset]:
        """Return what happened since ``start``, and the offset at which it ends."""
        end = self._batches.plan(start, Budget(self._rows_max, self._bytes_max))
        return BatchRows(self._batches, self._columns, start, end), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[Any, ...]]:  # noqa: N802 - Spark's name
        """Return what happened in a batch that was planned before the query was restarted."""
        return BatchRows(self._batches, self._columns, start, end)

    def commit(self, end: Offset) -> None:
        """Forget the batches that are done."""
        self._batches.commit(end)
