"""The format `pequod_lake` with writers whose processes are killed once, at a moment that a test chooses.

task     a task's process, when its file is staged
before   the process that commits, before it does
after    the same, when the lake has the rows and Spark does not know it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark_pequod_lake.source import DefaultSource
from pyspark_pequod_lake.writer import BatchWriter, Staged, StreamWriter

MOMENTS = ("task", "before", "after")
FORMAT = "pequod_lake_dying"


def register(spark: SparkSession, marker: Path, moment: str) -> None:
    """Have the next writer die; it makes the marker first, and does not die if that is there."""
    spark.dataSource.register(type("DyingSource", (_Source,), {"marker": str(marker), "moment": moment}))


class _Source(DefaultSource):
    marker: ClassVar[str]
    moment: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Batch(dict(self.options), schema, self.marker, self.moment)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return _Stream(dict(self.options), schema, self.marker, self.moment)


def _die(marker: str, moment: str, now: str) -> None:
    if moment == now:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(9)


class _Batch(BatchWriter):
    def __init__(self, options: dict[str, str], schema: StructType, marker: str, moment: str) -> None:
        super().__init__(options, schema)
        self._death = marker, moment

    def write(self, iterator: Iterator[Any]) -> Staged:
        staged = super().write(iterator)
        _die(*self._death, "task")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _die(*self._death, "before")
        super().commit(messages)
        _die(*self._death, "after")


class _Stream(StreamWriter):
    def __init__(self, options: dict[str, str], schema: StructType, marker: str, moment: str) -> None:
        super().__init__(options, schema)
        self._death = marker, moment

    def write(self, iterator: Iterator[Any]) -> Staged:
        staged = super().write(iterator)
        _die(*self._death, "task")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _die(*self._death, "before")
        super().commit(messages, batchId)
        _die(*self._death, "after")
