"""The data source as Spark finds it, without what a lake needs.

Spark imports every module whose name begins with `pyspark_` before it looks for any data source. If this one failed for
lack of DuckDB, those who have no lake could not use `pequod` either. So the lake is imported when a table is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pequod_installed.names import how_to_install
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

#: What to do instead of writing in Spark's mode `overwrite`.
_ROUND = "a row replaces the row of its key, and the option operation_column names a column that says what is deleted"


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
        columns: str = _module("tables").columns_of(self.options)
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read the columns of the schema.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed.
        """
        reader: DataSourceReader = _module("tables").LakeTableReader(dict(self.options), schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Write rows as one SCU.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed.
            ValueError: The mode is not append.
        """
        _refuse_overwrite(overwrite=overwrite)
        writer: DataSourceWriter = _module("writer").BatchWriter(dict(self.options), schema)
        return writer

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """Write each epoch of a stream as one SCU.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed.
            ValueError: The output mode is `complete`.
        """
        _refuse_overwrite(overwrite=overwrite)
        writer: DataSourceStreamWriter = _module("writer").StreamWriter(dict(self.options), schema)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read a table's state and then its SCUs.

        Raises:
            ModuleNotFoundError: What a lake needs is not installed, or PySpark is older than 4.2.
        """
        reader: DataSourceStreamReader = _module("stream").LakeStreamReader(dict(self.options), schema)
        return reader


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise ValueError(f"a lake is written in the mode append; {_ROUND}")


def _module(name: str) -> Any:
    try:
        return import_module(f"pyspark_pequod_lake.{name}")
    except ModuleNotFoundError as error:
        if error.name == "pyspark.sql.streaming.datasource":
            raise ModuleNotFoundError("a stream of a lake needs PySpark 4.2 or newer", name=error.name) from error
        raise ModuleNotFoundError(
            f"the format pequod_lake needs {error.name}: {how_to_install('lake')}", name=error.name
        ) from error
