"""The data source: options in, readers and writers out."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyspark_pequod import options as read_options
from pyspark_pequod.columns import Columns, default_schema
from pyspark_pequod.reader import Reader

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
