"""The data source: options in, readers and writers out."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pequod.engine.spec import Pattern
from pyspark_pequod import options as read_options
from pyspark_pequod.columns import Columns, default_schema
from pyspark_pequod.narrowing import key_ranges
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
        with_values = not read_options.boolean(self.options, "keys_only")
        return default_schema(read_options.key_pattern(self.options), with_values=with_values)

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
        read_options.refuse_range(self.options)
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
        ranges = key_ranges(self.options, pattern)
        if len(ranges) != 1:
            raise read_options.OptionError("prefix", "a stream follows one range; start a query for each")
        return StreamReader(
            read_options.connection(self.options),
            self._columns(schema, pattern, more=("old", "revision")),
            *ranges[0],
            starts_anew=read_options.choice(self.options, "compacted", ("fail", "reread")) == "reread",
        )

    def reader(self, schema: StructType) -> Reader:
        """Read ranges."""
        read_options.refuse_unknown(self.options)
        pattern = read_options.key_pattern(self.options)
        return Reader(
            read_options.connection(self.options),
            self._columns(schema, pattern),
            key_ranges(self.options, pattern),
            read_options.count(self.options, "partitions", _PARTITIONS),
        )

    def _columns(self, schema: StructType, pattern: Pattern | None, *, more: tuple[str, ...] = ()) -> Columns:
        columns = Columns(schema, pattern, more=more)
        if columns.with_values and read_options.boolean(self.options, "keys_only"):
            raise read_options.OptionError("keys_only", "the schema names `value`; leave out one of the two")
        return columns
