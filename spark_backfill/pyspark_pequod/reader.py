"""Batch reads: the server says where to cut the ranges into parts, and a task reads each part.

There is no `pushFilters`: PySpark up to 4.3 keeps the narrowed reader with the source, and all scans of one `load()`
share the source, so the filter of one scan would narrow the others. Spark applies all conditions itself.

A server that is restarted has lost its data, and a client continues with whichever server answers. So each task checks
that its server is the one that the read was planned with. At the address of a cluster any of its servers answers: they
have their base data from a database or from homes, and a server that is restarted loads it again.
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
    """Reads ranges, in parts, each by its own task.

    Ensures:
        Every row that is present during the whole read is read once. The rows of one chunk (256 KiB, unless the server
        has another setting) are of one moment; a read of several chunks is not, if others write meanwhile.
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
            ServerChangedError: The server was restarted since the read was planned.
        """
        freeze_imports()
        assert isinstance(partition, ReadPart)
        with self._connection.client() as client:
            keys_only = not self._columns.with_values
            for first, last in partition.ranges:
                for rows in client.scan_chunks(first, last, keys_only=keys_only):
                    self._refuse_changed(client, partition.server_id)
                    yield self._columns.batch(rows)
                # A range without rows gave no chunk to check.
                self._refuse_changed(client, partition.server_id)

    def _refuse_changed(self, client: Client, server_id: int) -> None:
        if client.server_id != server_id and not self._connection.is_of_cluster:
            raise ServerChangedError(self._connection.target, "the life of this DataFrame", "call load() again")


def _cut(client: Client, count: int, first: bytes, last: bytes | None) -> list[Bounds]:
    """Cut a range into parts with about equal numbers of rows, as the server counts them now."""
    splits = client.splits(count, first, last)
    return list(zip([first, *splits], [*splits, last], strict=True))
