"""The data source: options in, readers and writers out."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_pequod import options as read_options
from pyspark_pequod.columns import Columns, default_schema
from pyspark_pequod.packing import Packing
from pyspark_pequod.reader import Reader
from pyspark_pequod.stream import StreamReader
from pyspark_pequod.writer import StreamWriter, TaskWriter, Writer

#: Tasks of a read that does not say how many.
_PARTITIONS = 8


class DefaultSource(DataSource):
    """Ranges of a Pequod server, base or computed."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "pequod"

    def schema(self) -> str:
        """Return the columns, unless the caller chose some."""
        read_options.refuse_unknown(self.options)
        return default_schema(read_options.key_pattern(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: FBT001 - Spark's signature
        """Write a DataFrame."""
        self._refuse_overwrite(is_wanted=overwrite)
        return Writer(self._task_writer(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802 - Spark's
        """Write a stream."""
        self._refuse_overwrite(is_wanted=overwrite)
        return StreamWriter(self._task_writer(schema))

    def _task_writer(self, schema: StructType) -> TaskWriter:
        read_options.refuse_unknown(self.options)
        pattern = read_options.key_pattern(self.options)
        return TaskWriter(read_options.connection(self.options), Packing(schema, pattern))

    @staticmethod
    def _refuse_overwrite(*, is_wanted: bool) -> None:
        if is_wanted:
            raise read_options.OptionError("mode", "there is only append; `pequod rm --prefix` removes what is there")

    def simpleStreamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        """Read the changes of a range."""
        read_options.refuse_unknown(self.options)
        pattern = read_options.key_pattern(self.options)
        first, last = read_options.key_range(self.options, pattern)
        return StreamReader(
            read_options.connection(self.options),
            Columns(schema, pattern, more=("old", "revision")),
            first,
            last,
            starts_anew=read_options.choice(self.options, "compacted", ("fail", "reread")) == "reread",
        )

    def reader(self, schema: StructType) -> Reader:
        """Read a range."""
        read_options.refuse_unknown(self.options)
        pattern = read_options.key_pattern(self.options)
        first, last = read_options.key_range(self.options, pattern)
        return Reader(
            read_options.connection(self.options),
            Columns(schema, pattern),
            pattern,
            first,
            last,
            read_options.count(self.options, "partitions", _PARTITIONS),
        )
