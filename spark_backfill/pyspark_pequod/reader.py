"""Batch reads: ranges cut into parts where the server says, and a task for each.

There is no `pushFilters`: what it makes of a reader, PySpark up to 4.3 keeps with the source, which all scans of one
`load()` share, so that a filter of one narrowed the others. Spark looks at all conditions itself.

A server that is started anew has lost what it held, and a read goes on with whatever answers. Each task sees that it is
the server that was asked where to cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from pequod_spark.connection import Connection, ServerChangedError
from pequod_spark.tasks import freeze_imports
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pequod.client import Client
from pyspark_pequod.columns import RowColumns
from pyspark_pequod.narrowing import Bounds


class ReadPart(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Bounds], server_id: int) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)
        #: The server that the read was planned with.
        self.server_id = server_id


class BatchReader(DataSourceReader):
    """Reads ranges, in parts, each by a task of its own.

    Ensures:
        Every row that is there from the beginning of the read to its end is read once. The rows of one chunk (256 KiB,
        unless the server is set otherwise) are of one moment; a read of several is not, while others write.
    """

    def __init__(self, connection: Connection, columns: RowColumns, ranges: Sequence[Bounds], part_count: int) -> None:
        self._connection = connection
        self._columns = columns
        self._ranges = ranges
        self._part_count = part_count

    def partitions(self) -> list[ReadPart]:
        """Ask the server where to cut the ranges."""
        pieces = list(self._ranges)
        each = -(-self._part_count // max(1, len(pieces)))
        with self._connection.client() as client:
            client.joins()
            server_id = client.server_id
            if each > 1:
                pieces = [piece for first, last in pieces for piece in _cut(client, each, first, last)]
            self._refuse_changed(client, server_id)
        task_count = max(1, min(len(pieces), self._part_count))
        ends = [len(pieces) * number // task_count for number in range(task_count + 1)]
        return [ReadPart(pieces[start:end], server_id) for start, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part as Arrow batches.

        Raises:
            ServerChangedError: The server was started anew since the read was planned.
        """
        freeze_imports()
        assert isinstance(partition, ReadPart)
        with self._connection.client() as client:
            keys_only = not self._columns.with_values
            for first, last in partition.ranges:
                for rows in client.scan_chunks(first, last, keys_only=keys_only):
                    self._refuse_changed(client, partition.server_id)
                    yield self._columns.batch(rows)
                # Of a range without rows there was no chunk to look at.
                self._refuse_changed(client, partition.server_id)

    def _refuse_changed(self, client: Client, server_id: int) -> None:
        if client.server_id != server_id:
            raise ServerChangedError(self._connection.target, "the life of this DataFrame", "call load() again")


def _cut(client: Client, count: int, first: bytes, last: bytes | None) -> list[Bounds]:
    """Cut a range into parts of about equal numbers of rows, as the server sees them now."""
    splits = client.splits(count, first, last)
    return list(zip([first, *splits], [*splits, last], strict=True))
