"""Batch reads: a range cut into parts where the server says, and a task for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from pequod_spark.connection import Connection
from pequod_spark.tasks import freeze_imports
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pequod.engine.spec import Pattern
from pyspark_pequod.columns import Columns
from pyspark_pequod.filters import narrow


class KeyRange(InputPartition):
    """The keys that one task reads."""

    def __init__(self, first: bytes, last: bytes | None) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


class Reader(DataSourceReader):
    """Reads a range, each part by a task of its own.

    Ensures:
        Every row that is there from the beginning of the read to its end is read once. The rows of one chunk (3 MiB,
        unless the server is set otherwise) are of one moment; a read of several is not, while others write.
    """

    def __init__(
        self,
        connection: Connection,
        columns: Columns,
        pattern: Pattern | None,
        first: bytes,
        last: bytes | None,
        part_count: int,
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._pattern = pattern
        self._first = first
        self._last = last
        self._part_count = part_count
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def take_filters(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        """Narrow the range by what conditions say; return those that Spark has to look at."""
        left, (self._first, self._last) = narrow(filters, self._pattern, self._first, self._last)
        return left

    def partitions(self) -> list[KeyRange]:
        """Ask the server where to cut the range."""
        first, last = self._first, self._last
        if self._part_count == 1 or (last is not None and first >= last):
            return [KeyRange(first, last)]
        with self._connection.client() as client:
            splits = client.splits(self._part_count, first, last)
        return [KeyRange(start, stop) for start, stop in pairwise([first, *splits, last]) if start is not None]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part as Arrow batches."""
        freeze_imports()
        assert isinstance(partition, KeyRange)
        if partition.last is not None and partition.first >= partition.last:
            return
        with self._connection.client() as client:
            keys_only = not self._columns.with_values
            for rows in client.scan_chunks(partition.first, partition.last, keys_only=keys_only):
                yield self._columns.batch(rows)


class _PushFilters:
    """Takes filters, and does not mind if Spark has none to give.

    Where `spark.sql.python.filterPushdown.enabled` is off, Spark refuses readers with a `pushFilters` of their own,
    which it tells by the function behind the method. Without filters such a reader only reads more.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)
