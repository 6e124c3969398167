"""The data source: options in, readers and writers out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from pequod.language.spec import Pattern
from pyspark_pequod import options as read_options
from pyspark_pequod.batches import Batches
from pyspark_pequod.columns import RowColumns, default_schema
from pyspark_pequod.narrowing import key_ranges
from pyspark_pequod.packing import Packing
from pyspark_pequod.reader import BatchReader
from pyspark_pequod.simple_stream import SimpleStreamReader
from pyspark_pequod.writer import BatchWriter, StreamWriter, TaskWriter

#: The number of tasks of a read that does not say it.
_PARTITIONS = 8
#: The ranges of a stream, each followed by a watch of its own.
_FOLLOWED_MAX = 100
#: The bytes of a stream's batch that does not say it: the driver has one in memory, and hands it to tasks.
_BATCH_BYTES_MAX = 256 << 20
#: What to do instead of writing in Spark's mode `overwrite`.
_ROUND = "a put replaces the value of its key, and `pequod rm --prefix` removes what is there"


def register(spark: SparkSession) -> None:
    """Make the settings `spark.pequod.*` of a session the defaults of all its reads and writes.

    Spark hands no settings to data sources, so this function copies them; call it again after a change.

    Raises:
        OptionError: A setting is not one that a session may have.
    """
    settings = read_options.session_settings(spark.conf.getAll)
    spark.dataSource.register(type("DefaultSource", (DefaultSource,), {"settings": settings}))


class DefaultSource(DataSource):
    """Ranges of a Pequod server, base or computed."""

    #: Options of all reads and writes that do not have their own.
    settings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: dict[str, str]) -> None:
        for name, value in self.settings.items():
            if name not in options:
                options[name] = value
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "pequod"

    def schema(self) -> str:
        """Return the columns of a read that does not choose them."""
        read_options.refuse_unknown(self.options)
        with_values = not read_options.boolean(self.options, "keys_only")
        return default_schema(read_options.key_pattern(self.options), with_values=with_values)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Write a DataFrame."""
        if overwrite:
            raise read_options.OptionError("mode", f"there is only append; {_ROUND}")
        return BatchWriter(self._task_writer(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - Spark's
        """Write a stream."""
        if overwrite:
            raise read_options.OptionError(
                "outputMode",
                f"there is only append; write each batch with `foreachBatch`, as docs/spark.md shows, or {_ROUND}",
            )
        return StreamWriter(self._task_writer(schema))

    def _task_writer(self, schema: StructType) -> TaskWriter:
        read_options.refuse_unknown(self.options)
        read_options.refuse_range(self.options)
        read_options.refuse_limits(self.options, "a write")
        pattern = read_options.key_pattern(self.options)
        takes_nulls = read_options.choice(self.options, "nulls", ("refuse", "remove")) == "remove"
        packing = Packing(schema, pattern, takes_nulls=takes_nulls)
        return TaskWriter(read_options.connection(self.options), packing, read_options.rate(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read the rows and the changes of ranges, in tasks.

        Raises:
            PySparkNotImplementedError: PySpark is 4.1, which takes `simpleStreamReader` then.
        """
        try:
            from pyspark_pequod.stream import StreamReader  # noqa: PLC0415 - not in PySpark 4.1
        except ModuleNotFoundError:
            raise PySparkNotImplementedError(
                errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "streamReader"}
            ) from None
        parts = read_options.count(self.options, "partitions", 1) if "partitions" in self.options else None
        return StreamReader(*self._batches(schema), parts, *self._limits())

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read the rows and the changes of ranges, in one task."""
        return SimpleStreamReader(*self._batches(schema), *self._limits())

    def _batches(self, schema: StructType) -> tuple[Batches, RowColumns]:
        read_options.refuse_unknown(self.options)
        read_options.refuse_written(self.options)
        pattern = read_options.key_pattern(self.options)
        ranges = key_ranges(self.options, pattern)
        if not 1 <= len(ranges) <= _FOLLOWED_MAX:
            raise read_options.OptionError(
                "prefix", f"a stream follows 1 to {_FOLLOWED_MAX} ranges, each by a watch, and not {len(ranges)}"
            )
        starts_anew = read_options.choice(self.options, "compacted", ("fail", "reread")) == "reread"
        connection = read_options.connection(self.options)
        columns = self._columns(schema, pattern, more=("old", "revision"))
        return Batches(connection, ranges, starts_anew=starts_anew), columns

    def _limits(self) -> tuple[int | None, int]:
        """Return the rows and the bytes of a batch."""
        is_limited = "maxRowsPerTrigger" in self.options
        rows_max = read_options.count(self.options, "maxRowsPerTrigger", 1) if is_limited else None
        return rows_max, read_options.count(self.options, "maxBytesPerTrigger", _BATCH_BYTES_MAX)

    def reader(self, schema: StructType) -> BatchReader:
        """Read ranges."""
        read_options.refuse_unknown(self.options)
        read_options.refuse_written(self.options)
        read_options.refuse_limits(self.options, "a batch read")
        pattern = read_options.key_pattern(self.options)
        return BatchReader(
            read_options.connection(self.options),
            self._columns(schema, pattern),
            key_ranges(self.options, pattern),
            read_options.count(self.options, "partitions", _PARTITIONS),
        )

    def _columns(self, schema: StructType, pattern: Pattern | None, *, more: tuple[str, ...] = ()) -> RowColumns:
        columns = RowColumns(schema, pattern, more=more)
        if columns.with_values and read_options.boolean(self.options, "keys_only"):
            raise read_options.OptionError("keys_only", "the schema names `value`; leave out one of the two")
        return columns
