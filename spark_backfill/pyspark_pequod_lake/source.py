"""The data source as Spark finds it, without what a lake needs.

Spark imports every module whose name begins with `pyspark_` before it looks for any data source. If this one failed for
lack of DuckDB, those who have no lake could not use `pequod` either. So the lake is imported when a table is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pequod_installed.names import how_to_install
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """A table of a lake."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "pequod_lake"

    def schema(self) -> str:
        """Return the columns of a read that does not choose them.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed.
        """
        columns: str = _tables().columns_of(self.options)
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the columns of the schema.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed.
        """
        reader: DataSourceReader = _tables().LakeTableReader(dict(self.options), tuple(schema.fieldNames()))
        return reader


def _tables() -> ModuleType:
    try:
        from pyspark_pequod_lake import tables  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the format pequod_lake needs {error.name}: {how_to_install('lake')}", name=error.name
        ) from error
    return tables
